// SPDX-License-Identifier: Apache-2.0
// Random cases over sizes, options, types, strides and wanted results: every method against the
// oracle. Fixed seeds, and fresh ones that a failure prints (FLCE_TEST_SEED repeats them).
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <string>
#include <tuple>

#include "support/compare.hpp"
#include "support/params.hpp"

namespace flce_test {
namespace {

using flce::Dtype;

RunConfig draw_config(const Case& c, flce::Method method, Rng& rng) {
  RunConfig config;
  config.method = method;
  config.chunk = rng.pick<std::int64_t>(
      {0, 1, 7, 16, std::max<std::int64_t>(c.in.tokens - 1, 1), c.in.tokens, 1000});
  config.threads = rng.pick({1, 1, 2, 3});
  config.pass = rng.pick({flce::Pass::kRun, flce::Pass::kForwardBackward});
  if (rng.chance(0.3) && !refusal(c, config).has_value()) {
    // Less memory than it would take: smaller chunks and slabs, if there are any.
    RunConfig lean = config;
    lean.chunk = 0;
    lean.budget_bytes = run_case(c, lean).plan.extra_bytes * 2 / 3;
    if (lean.budget_bytes > 0 && !refusal(c, lean).has_value()) return lean;
  }
  return config;
}

void check_seed(Dtype dtype, std::uint64_t seed) {
  const Case c = random_case(dtype, seed);
  const oracle::Result want = oracle::evaluate(c.in);
  Rng rng(seed ^ 0xC0FFEEULL);
  for (const flce::Method method : kMethods) {
    const RunConfig config = draw_config(c, method, rng);
    ASSERT_NO_THROW(check_case(c, want, config)) << describe(c, config);
  }
}

class Sweep : public testing::TestWithParam<std::tuple<Dtype, int>> {};

TEST_P(Sweep, FixedSeeds) {
  const auto [dtype, block] = GetParam();
  for (std::uint64_t i = 0; i < 100 && !HasFailure(); ++i) {
    check_seed(dtype, 1000U * static_cast<std::uint64_t>(block) + i);
  }
}

TEST_P(Sweep, FreshSeeds) {
  const auto [dtype, block] = GetParam();
  Rng rng(fresh_seed() + static_cast<std::uint64_t>(block));
  for (int i = 0; i < 25 && !HasFailure(); ++i) check_seed(dtype, rng.next());
}

// With an upstream gradient large enough: grad_weight's largest number is more than f16 holds.
TEST(SweepSeed, AGradientBeyondF16IsInfinite) {
  constexpr std::uint64_t kSeed = 10466480210602602765U;
  const Case c = random_case(Dtype::kF16, kSeed);
  const oracle::Result want = oracle::evaluate(c.in);
  std::int64_t num_beyond = 0;
  for (const double value : want.grad_weight) num_beyond += std::abs(value) > 65520.0 ? 1 : 0;
  EXPECT_GT(num_beyond, 0);
  check_seed(Dtype::kF16, kSeed);
}

INSTANTIATE_TEST_SUITE_P(Op, Sweep,
                         testing::Combine(testing::ValuesIn(kDtypes), testing::Range(0, 4)),
                         [](const auto& param) {
                           return std::string(flce::name_of(std::get<0>(param.param))) + "_" +
                                  std::to_string(std::get<1>(param.param));
                         });

}  // namespace
}  // namespace flce_test
