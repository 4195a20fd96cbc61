// SPDX-License-Identifier: Apache-2.0
// The expected time on a processor: what must grow with what. How close it comes to measurements is
// printed by scripts/dev/fit_cpu_cost.py.
#include <gtest/gtest.h>

#include "test_plan_support.hpp"

namespace flce::test {
namespace {

DeviceCaps cpu_with(double flops, double bandwidth) {
  DeviceCaps caps = fixed_cpu();
  caps.matmul_flops = flops;
  caps.bandwidth_bytes = bandwidth;
  return caps;
}

const DeviceCaps kCpu = cpu_with(2e11, 2.5e10);

double seconds_of(const char* text, Method method, std::int64_t chunk = 0,
                  const DeviceCaps& caps = kCpu) {
  return plan(problem_by(text), caps, {.method = method, .chunk = chunk}).seconds;
}

constexpr Method kMethods[] = {Method::kNaive,     Method::kChunked,    Method::kFused,
                               Method::kRecompute, Method::kNaiveEager, Method::kChunkedEager};

TEST(PlanCost, IsMoreThanTheProductsAtThePeak) {
  const double products = 3 * 2.0 * 2048 * 1024 * 32000 / 2e11;
  for (const Method method : kMethods) {
    const double seconds = seconds_of("n2048_h1024_v32000 f32 mean", method);
    const double least = method == Method::kRecompute ? products * 4 / 3 : products;
    EXPECT_GT(seconds, least) << name_of(method);
    EXPECT_LT(seconds, 2.5 * least) << name_of(method);
  }
}

TEST(PlanCost, GrowsWithEachSize) {
  for (const Method method : kMethods) {
    const double one = seconds_of("n2048_h1024_v32000 bf16 mean", method, 512);
    for (const char* text : {"n4096_h1024_v32000 bf16 mean", "n2048_h2048_v32000 bf16 mean",
                             "n2048_h1024_v64000 bf16 mean"}) {
      const double two = seconds_of(text, method, 512);
      EXPECT_GT(two, 1.5 * one) << name_of(method) << text;
      EXPECT_LT(two, 2.1 * one) << name_of(method) << text;
    }
  }
}

TEST(PlanCost, SmallChunksCostMore) {
  for (const Method method :
       {Method::kChunked, Method::kFused, Method::kRecompute, Method::kChunkedEager}) {
    const auto seconds = [&](std::int64_t chunk) {
      return seconds_of("n4096_h1024_v32000 bf16 mean", method, chunk);
    };
    EXPECT_GT(seconds(16), 1.3 * seconds(512)) << name_of(method);
    EXPECT_GT(seconds(64), seconds(256)) << name_of(method);
    EXPECT_GT(seconds(256), seconds(512)) << name_of(method);
  }
}

TEST(PlanCost, FallsWithBetterFigures) {
  for (const Method method : kMethods) {
    const char* text = "n2048_h256_v32000 f32 mean";
    const double slow = seconds_of(text, method);
    EXPECT_LT(seconds_of(text, method, 0, cpu_with(4e11, 2.5e10)), slow) << name_of(method);
    EXPECT_LT(seconds_of(text, method, 0, cpu_with(2e11, 5e10)), slow) << name_of(method);
    // An unknown bandwidth leaves its part out.
    EXPECT_LT(seconds_of(text, method, 0, cpu_with(2e11, 0.0)), slow) << name_of(method);
    EXPECT_EQ(seconds_of(text, method, 0, cpu_with(0.0, 2.5e10)), 0.0) << name_of(method);
  }
}

TEST(PlanCost, KnowsWhatIsNotWanted) {
  const char* all = "n2048_h256_v32000 f32 mean";
  const char* frozen = "n2048_h256_v32000 f32 mean no_grad_weight";
  const char* forward = "n2048_h256_v32000 f32 mean no_grad_weight no_grad_hidden";
  for (const Method method : kMethods) {
    EXPECT_LT(seconds_of(frozen, method), seconds_of(all, method)) << name_of(method);
    EXPECT_LT(seconds_of(forward, method), seconds_of(frozen, method)) << name_of(method);
  }
  EXPECT_GT(seconds_of(all, Method::kRecompute), seconds_of(all, Method::kFused));
  EXPECT_GT(seconds_of(all, Method::kNaiveEager), seconds_of(all, Method::kNaive));
}

}  // namespace
}  // namespace flce::test
