// SPDX-License-Identifier: Apache-2.0
// Tokens without a target: they count for nothing, get exact zeros, and nothing that stands in
// their rows comes out anywhere. NaN in a token that has a target does come out.
#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "support/compare.hpp"
#include "support/params.hpp"
#include "support/wants.hpp"

namespace flce_test {
namespace {

constexpr double kNan = std::numeric_limits<double>::quiet_NaN();

class Ignored : public testing::TestWithParam<MethodAndDtype> {
 protected:
  RunConfig config() const { return {GetParam().method, 8}; }
};

Case many_outputs(flce::Dtype dtype) {
  Case c = basic_case({26, 18, 85}, dtype, 83);
  Rng rng(89);
  c.in.bias = random_normals(dtype, 85, 1.0, rng);
  c.in.token_weight = random_weights(c, 26, rng);
  c.in.temperature_per_token = random_weights(c, 26, rng);
  c.wants = every_output(3);
  c.in.topk = 3;
  c.in.z_loss = 1e-3;
  return c;
}

TEST_P(Ignored, AllOfThem) {
  for (const double smoothing : {0.0, 0.1}) {
    for (const oracle::Reduction reduction :
         {oracle::Reduction::kNone, oracle::Reduction::kSum, oracle::Reduction::kMean}) {
      Case c = many_outputs(GetParam().dtype);
      c.in.smoothing = smoothing;
      c.in.reduction = reduction;
      c.in.target.assign(26, c.in.ignore_index);
      const Results results = run_case(c, config()).results;
      expect_matches(c, oracle::evaluate(c.in), results, describe(c, config()));
      EXPECT_TRUE(all_zero(results.grad_hidden));
      EXPECT_TRUE(all_zero(results.grad_weight));
      EXPECT_TRUE(all_zero(results.grad_bias));
      EXPECT_EQ(results.num_valid[0], 0);
      EXPECT_EQ(results.num_correct[0], 0);
      const bool mean = reduction == oracle::Reduction::kMean;
      EXPECT_EQ(std::isnan(results.loss[0]), mean);
      EXPECT_TRUE(mean || results.loss[0] == 0.0);
    }
  }
}

TEST_P(Ignored, NormalizersOfAnEmptyBatch) {
  for (const double normalizer : {0.0, 4.0}) {
    for (const auto dtype : {flce::Dtype::kNone, flce::Dtype::kF32, flce::Dtype::kI64}) {
      Case c = many_outputs(GetParam().dtype);
      c.in.reduction = oracle::Reduction::kSum;
      c.in.has_normalizer = true;
      c.in.normalizer = normalizer;
      c.normalizer_dtype = dtype;
      c.in.target.assign(26, c.in.ignore_index);
      const Results results = run_case(c, config()).results;
      EXPECT_TRUE(all_zero(results.loss));
      EXPECT_TRUE(all_zero(results.z_loss));
      EXPECT_TRUE(all_zero(results.grad_hidden));
      EXPECT_TRUE(all_zero(results.grad_weight));
      EXPECT_TRUE(all_zero(results.grad_bias));
    }
  }
}

TEST_P(Ignored, PoisonNeverComesOut) {
  for (std::uint64_t seed = 0; seed < 4; ++seed) {
    Case c = many_outputs(GetParam().dtype);
    Rng rng(seed);
    c.in.reduction = seed % 2 == 0 ? oracle::Reduction::kMean : oracle::Reduction::kNone;
    if (seed % 2 == 1) c.in.grad_output = random_weights(c, 26, rng);
    ignore_some(c, 0.4, rng);
    const Results clean = run_case(c, config()).results;
    poison_ignored(c, rng);
    const Results poisoned = run_case(c, config()).results;
    EXPECT_EQ(first_difference(clean, poisoned), "") << describe(c, config());
    expect_matches(c, oracle::evaluate(c.in), poisoned, describe(c, config()));
  }
}

TEST_P(Ignored, PoisonedEntropyUpstreamNeverComesOut) {
  Case c = many_outputs(GetParam().dtype);
  Rng rng(97);
  ignore_some(c, 0.4, rng);
  c.in.grad_entropy = random_normals(GetParam().dtype, 26, 1.0, rng);
  poison_ignored(c, rng);
  ASSERT_NO_THROW(check_case(c, oracle::evaluate(c.in), config())) << describe(c, config());
}

TEST_P(Ignored, IgnoreIndexInsideTheVocabulary) {
  for (const std::int64_t index : {0, 40, 84}) {
    Case c = many_outputs(GetParam().dtype);
    c.in.ignore_index = index;
    for (std::int64_t i = 0; i < 26; i += 3) c.in.target[i] = index;
    ASSERT_NO_THROW(check_case(c, oracle::evaluate(c.in), config())) << describe(c, config());
  }
}

TEST_P(Ignored, NanInAValidTokenComesOut) {
  Case c = many_outputs(GetParam().dtype);
  c.in.reduction = oracle::Reduction::kNone;
  c.in.x[11 * 18 + 4] = kNan;
  const Results results = run_case(c, config()).results;
  const oracle::Result want = oracle::evaluate(c.in);
  for (std::int64_t i = 0; i < 26; ++i) {
    EXPECT_EQ(std::isnan(results.loss[i]), i == 11) << i;
    EXPECT_EQ(std::isnan(results.lse[i]), i == 11) << i;
    EXPECT_EQ(std::isnan(results.entropy[i]), i == 11) << i;
    EXPECT_EQ(std::isnan(results.grad_hidden[i * 18]), i == 11) << i;
  }
  EXPECT_TRUE(std::isnan(results.grad_weight[0]));
  EXPECT_TRUE(std::isnan(results.grad_bias[0]));
  c.in.reduction = oracle::Reduction::kMean;
  EXPECT_TRUE(std::isnan(run_case(c, config()).results.loss[0]));
}

TEST_P(Ignored, NanInTheWeightComesOut) {
  Case c = many_outputs(GetParam().dtype);
  c.in.w[60 * 18 + 2] = kNan;
  const Results results = run_case(c, config()).results;
  EXPECT_TRUE(std::isnan(results.loss[0]));
  EXPECT_TRUE(std::isnan(results.lse[0]));
  EXPECT_TRUE(std::isnan(results.grad_weight[0]));
}

TEST_P(Ignored, LogitsAtMinusInfinity) {
  // A class that can never be: no gradient there, and the others as if it did not exist.
  Case c = many_outputs(GetParam().dtype);
  for (const std::int64_t banned : {0, 50, 84}) {
    c.in.bias[banned] = -std::numeric_limits<double>::infinity();
    for (std::int64_t& target : c.in.target) target = target == banned ? 7 : target;
  }
  const Results results = run_case(c, config()).results;
  expect_matches(c, oracle::evaluate(c.in), results, describe(c, config()));
  for (const std::int64_t banned : {0, 50, 84}) EXPECT_EQ(results.grad_bias[banned], 0.0);
  c.in.smoothing = 0.1;  // log 0 is in the loss now, gradients stay finite
  ASSERT_NO_THROW(check_case(c, oracle::evaluate(c.in), config())) << describe(c, config());
  c.in.class_weight.assign(85, 1.0);
  for (const std::int64_t banned : {0, 50, 84}) c.in.class_weight[banned] = 0.0;
  ASSERT_NO_THROW(check_case(c, oracle::evaluate(c.in), config())) << describe(c, config());
}

TEST_P(Ignored, ImpossibleTargetHasInfiniteLossAndFiniteGradients) {
  Case c = many_outputs(GetParam().dtype);
  c.in.z_loss = 0.0;
  c.in.bias[9] = -std::numeric_limits<double>::infinity();
  c.in.target[5] = 9;
  const Results results = run_case(c, config()).results;
  EXPECT_EQ(results.loss[0], std::numeric_limits<double>::infinity());
  for (const double value : results.grad_hidden) ASSERT_TRUE(std::isfinite(value));
  expect_matches(c, oracle::evaluate(c.in), results, describe(c, config()));
}

TEST_P(Ignored, ShiftedSequences) {
  for (const std::int64_t shift : {1, 2, 13, 30}) {
    for (const std::int64_t length : {0, 13}) {
      Case c = many_outputs(GetParam().dtype);
      Rng rng(101);
      c.in.shift = shift;
      c.in.sequence_length = length;
      ignore_some(c, 0.2, rng);
      ASSERT_NO_THROW(check_case(c, oracle::evaluate(c.in), config())) << describe(c, config());
    }
  }
}

TEST_P(Ignored, ShiftIsAShiftedCopyOfTheTargets) {
  Case c = many_outputs(GetParam().dtype);
  c.in.shift = 1;
  c.in.sequence_length = 13;
  Case copied = c;
  copied.in.shift = copied.in.sequence_length = 0;
  for (std::int64_t i = 0; i < 26; ++i) {
    copied.in.target[i] = i % 13 == 12 ? c.in.ignore_index : c.in.target[i + 1];
  }
  EXPECT_EQ(first_difference(run_case(c, config()).results, run_case(copied, config()).results),
            "");
}

INSTANTIATE_TEST_SUITE_P(Op, Ignored, testing::ValuesIn(methods_and_dtypes()), param_name);

}  // namespace
}  // namespace flce_test
