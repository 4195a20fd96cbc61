// SPDX-License-Identifier: Apache-2.0
// The eager variants, run: right results (with the roundings of eager code), the bytes that the
// plan says, and a refusal of what they are only planned for.
#include <gtest/gtest.h>

#include <string>
#include <tuple>

#include "support/compare.hpp"
#include "support/device.hpp"
#include "support/params.hpp"

namespace flce_test {
namespace {

using flce::Dtype;
using flce::Method;

// Relative, of a gradient: logits, gradient and each chunk's sum are rounded to the type.
double bound(Dtype dtype) {
  if (dtype == Dtype::kF64) return 1e-12;
  if (dtype == Dtype::kF32) return 1e-5;
  return dtype == Dtype::kF16 ? 1e-2 : 3e-2;
}

class Eager : public testing::TestWithParam<std::tuple<Method, Dtype>> {
 protected:
  static Method method() { return std::get<0>(GetParam()); }
  static Dtype dtype() { return std::get<1>(GetParam()); }

  static void check(const Case& c, const RunConfig& config) {
    const oracle::Result want = oracle::evaluate(c.in);
    const Outcome got = run_case(c, config);
    const std::string what = describe(c, config);
    EXPECT_TRUE(all_near(got.results.loss, want.loss, bound(dtype()))) << what;
    if (c.wants.grad_hidden) {
      EXPECT_LE(relative_error(got.results.grad_hidden, want.grad_hidden), bound(dtype())) << what;
    }
    if (c.wants.grad_weight) {
      EXPECT_LE(relative_error(got.results.grad_weight, want.grad_weight), bound(dtype())) << what;
    }
  }
};

TEST_P(Eager, AgreesWithTheOracle) {
  for (const Sizes& sizes : {Sizes{1, 1, 2}, Sizes{3, 5, 4}, Sizes{67, 33, 200}, Sizes{97, 8, 577},
                             Sizes{50, 130, 1001}}) {
    for (const std::int64_t chunk : {std::int64_t{0}, std::int64_t{1}, std::int64_t{32}}) {
      Case c = basic_case(sizes, dtype(), 7);
      check(c, {method(), chunk, 2});
    }
  }
}

TEST_P(Eager, TakesReductionsIgnoredTokensAndStrides) {
  for (const auto reduction :
       {oracle::Reduction::kNone, oracle::Reduction::kSum, oracle::Reduction::kMean}) {
    Case c = basic_case({40, 17, 301}, dtype(), 11, Data::kPeaked);
    Rng rng(3);
    c.in.reduction = reduction;
    c.target_dtype = Dtype::kI32;
    ignore_some(c, 0.3, rng);
    c.layout.hidden_gap = 3;
    c.layout.weight_gap = 5;
    c.layout.grad_gap = 2;
    c.layout.target_stride = 2;
    check(c, {method(), 16, 3});
  }
}

TEST_P(Eager, MakesOnlyWhatIsWanted) {
  for (const auto& [hidden, weight] : {std::pair{false, false}, {true, false}, {false, true}}) {
    Case c = basic_case({33, 20, 257}, dtype(), 5);
    c.wants.grad_hidden = hidden;
    c.wants.grad_weight = weight;
    if (dtype() != Dtype::kF64) c.grad_weight_dtype = Dtype::kF32;
    check(c, {method(), 10, 2});
  }
}

TEST_P(Eager, AMeanOverNothingIsNan) {
  Case c = basic_case({9, 4, 30}, dtype(), 2);
  c.in.target.assign(c.in.target.size(), c.in.ignore_index);
  const Outcome got = run_case(c, {method(), 4});
  EXPECT_TRUE(std::isnan(got.results.loss[0]));
  EXPECT_TRUE(all_zero(got.results.grad_hidden));
}

TEST_P(Eager, IsTheSameForAnyNumberOfThreads) {
  if (on_cuda()) GTEST_SKIP() << kCpuAlone;
  const Case c = basic_case({70, 40, 600}, dtype(), 9);
  const Outcome one = run_case(c, {method(), 24, 1});
  const Outcome three = run_case(c, {method(), 24, 3});
  EXPECT_EQ(first_difference(one.results, three.results), "");
}

TEST_P(Eager, KeepsTheTensorsOfEagerCodeAndNoMore) {
  const std::uint64_t logits = 300 * 5000;
  const Case c = basic_case({300, 16, 5000}, dtype(), 4);
  const Outcome got = run_case(c, {method(), 100, 2});
  const std::uint64_t in = static_cast<std::uint64_t>(flce::size_of(dtype()));
  const std::uint64_t wide = dtype() == Dtype::kF64 ? 8 : 4;
  const std::uint64_t all = in < wide ? 2 * in + 3 * wide : 3 * wide;
  const bool chunked = method() == Method::kChunkedEager;
  const std::uint64_t tensors = chunked ? logits * in + logits / 3 * (all - in) : logits * all;
  // On a card also what cuBLASLt works in, and the tokens' losses.
  const std::uint64_t beside = on_cuda() ? (std::uint64_t{32} << 20) + 300 * 128 : 0;
  EXPECT_GE(got.plan.extra_bytes, tensors);
  EXPECT_LE(got.plan.extra_bytes, tensors + beside);
}

TEST_P(Eager, RefusesToRunWhatItIsOnlyPlannedFor) {
  Case c = basic_case({8, 4, 20}, dtype(), 4);
  c.in.smoothing = 0.1;
  const Memory memory(c);
  const flce::Plan plan =
      flce::plan(memory.problem(c, flce::Pass::kRun), caps_with(1), {.method = method()});
  Block workspace(plan.workspace_bytes);
  try {
    flce_test::run(plan, memory.inputs(), memory.outputs(), workspace.span());
    FAIL() << "it ran";
  } catch (const flce::Error& error) {
    EXPECT_EQ(error.code(), flce::ErrorCode::kUnsupported);
    EXPECT_NE(std::string(error.what()).find("planned only"), std::string::npos) << error.what();
  }
}

INSTANTIATE_TEST_SUITE_P(Op, Eager,
                         testing::Combine(testing::Values(Method::kNaiveEager,
                                                          Method::kChunkedEager),
                                          testing::ValuesIn(kDtypes)),
                         [](const auto& param) {
                           std::string name = flce::name_of(std::get<0>(param.param));
                           name[name.find('-')] = '_';
                           return name + "_" + flce::name_of(std::get<1>(param.param));
                         });

}  // namespace
}  // namespace flce_test
