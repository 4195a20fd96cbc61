// SPDX-License-Identifier: Apache-2.0
// Results are made when asked for and only then, and asking for one changes no other: frozen head,
// frozen trunk, loss alone, bias alone; accumulation into buffers that hold values.
#include <gtest/gtest.h>

#include "support/compare.hpp"
#include "support/params.hpp"
#include "support/storage.hpp"

namespace flce_test {
namespace {

using flce::Dtype;

class WantsTest : public testing::TestWithParam<MethodAndDtype> {
 protected:
  RunConfig config() const { return {GetParam().method, 8}; }
  Results run(const Case& c) const { return run_case(c, config()).results; }
};

Case training_case(Dtype dtype) {
  Case c = basic_case({27, 20, 141}, dtype, 29);
  Rng rng(37);
  c.in.bias = random_normals(dtype, 141, 1.0, rng);
  c.in.z_loss = 1e-3;
  c.in.smoothing = 0.1;
  c.wants.grad_bias = true;
  ignore_some(c, 0.2, rng);
  return c;
}

TEST_P(WantsTest, LossAloneIsTheTrainingLoss) {
  Case c = training_case(GetParam().dtype);
  for (const oracle::Reduction reduction :
       {oracle::Reduction::kNone, oracle::Reduction::kSum, oracle::Reduction::kMean}) {
    c.in.reduction = reduction;
    Case evaluation = c;
    evaluation.wants = {.grad_hidden = false, .grad_weight = false};
    Results trained = run(c);
    trained.grad_hidden.clear();
    trained.grad_weight.clear();
    trained.grad_bias.clear();
    EXPECT_EQ(difference_of_calls(run(evaluation), trained, c.dtype), "");
  }
}

TEST_P(WantsTest, EverySubsetOfGradientsGivesTheSameBits) {
  const Case c = training_case(GetParam().dtype);
  const Results all = run(c);
  for (int subset = 0; subset < 8; ++subset) {
    Case part = c;
    part.wants.grad_hidden = (subset & 1) != 0;
    part.wants.grad_weight = (subset & 2) != 0;
    part.wants.grad_bias = (subset & 4) != 0;
    Results want = all;
    if (!part.wants.grad_hidden) want.grad_hidden.clear();
    if (!part.wants.grad_weight) want.grad_weight.clear();
    if (!part.wants.grad_bias) want.grad_bias.clear();
    EXPECT_EQ(difference_of_calls(run(part), want, c.dtype), "") << "subset " << subset;
  }
}

TEST_P(WantsTest, OptionalOutputsChangeNothingElse) {
  const Case c = training_case(GetParam().dtype);
  const Results plain = run(c);
  Case all = c;
  all.wants.lse = all.wants.logprob = all.wants.entropy = all.wants.z_loss = true;
  all.wants.argmax = all.wants.num_correct = all.wants.num_valid = true;
  all.wants.topk = all.in.topk = 5;
  const Results full = run(all);
  expect_matches(all, oracle::evaluate(all.in), full, describe(all, config()));
  Results same;
  same.loss = full.loss;
  same.grad_hidden = full.grad_hidden;
  same.grad_weight = full.grad_weight;
  same.grad_bias = full.grad_bias;
  EXPECT_EQ(difference_of_calls(same, plain, c.dtype), "");
}

TEST_P(WantsTest, EachOptionalOutputAlone) {
  const Case c = training_case(GetParam().dtype);
  const oracle::Result want = oracle::evaluate(c.in);
  for (const auto member :
       {&flce::Wants::lse, &flce::Wants::logprob, &flce::Wants::entropy, &flce::Wants::z_loss,
        &flce::Wants::argmax, &flce::Wants::num_correct, &flce::Wants::num_valid}) {
    Case one = c;
    one.wants = {.grad_hidden = false, .grad_weight = false};
    one.wants.*member = true;
    ASSERT_NO_THROW(check_case(one, want, config())) << describe(one, config());
  }
}

TEST_P(WantsTest, TopkOfEverySize) {
  Case c = training_case(GetParam().dtype);
  for (const std::int64_t k : {1, 2, 16, 140, 141}) {
    c.wants.topk = c.in.topk = k;
    ASSERT_NO_THROW(check_case(c, oracle::evaluate(c.in), config())) << describe(c, config());
  }
}

TEST_P(WantsTest, FrozenPartsCostNoMemory) {
  Case c = training_case(GetParam().dtype);
  const flce::Plan full = run_case(c, config()).plan;
  c.wants.grad_weight = false;
  const flce::Plan frozen_head = run_case(c, config()).plan;
  c.wants.grad_hidden = false;
  c.wants.grad_bias = false;
  const flce::Plan evaluation = run_case(c, config()).plan;
  EXPECT_LE(frozen_head.extra_bytes, full.extra_bytes);
  EXPECT_LE(evaluation.extra_bytes, frozen_head.extra_bytes);
  EXPECT_LT(frozen_head.peak_bytes, full.peak_bytes);
  EXPECT_LT(evaluation.peak_bytes, frozen_head.peak_bytes);
}

TEST_P(WantsTest, AccumulatesIntoEitherType) {
  const Dtype dtype = GetParam().dtype;
  Case c = training_case(dtype);
  const oracle::Result want = oracle::evaluate(c.in);
  Rng rng(43);
  for (const Dtype type : {Dtype::kNone, Dtype::kF32}) {
    if (dtype == Dtype::kF64 && type == Dtype::kF32) continue;
    c.grad_weight_dtype = type;
    c.grad_bias_dtype = type;
    for (const std::int64_t chunk : {1, 8, 27}) {
      c.grad_weight_start = random_normals(c.grad_weight_type(), 141 * 20, 0.1, rng);
      c.grad_bias_start = random_normals(c.grad_bias_type(), 141, 0.1, rng);
      const RunConfig chunked{GetParam().method, chunk};
      ASSERT_NO_THROW(check_case(c, want, chunked)) << describe(c, chunked);
      c.grad_bias_start.clear();  // one of the two alone
      ASSERT_NO_THROW(check_case(c, want, chunked)) << describe(c, chunked);
    }
  }
}

TEST_P(WantsTest, AddingToZeroIsWriting) {
  Case c = training_case(GetParam().dtype);
  if (GetParam().dtype != Dtype::kF64) c.grad_weight_dtype = Dtype::kF32;
  const Results written = run(c);
  c.grad_weight_start.assign(141 * 20, 0.0);
  c.grad_bias_start.assign(141, 0.0);
  const Results added = run(c);
  EXPECT_LE(relative_error(added.grad_weight, written.grad_weight), 1e-7);
  EXPECT_TRUE(all_near(added.grad_bias, written.grad_bias, 1e-7));
}

TEST_P(WantsTest, AccumulatingNarrowRoundsOnce) {
  // Into a 16-bit buffer: the sum of buffer and gradient rounded once, not once per chunk.
  const Dtype dtype = GetParam().dtype;
  Case c = basic_case({512, 8, 20}, dtype, 47);
  c.in.reduction = oracle::Reduction::kSum;
  Rng rng(53);
  c.grad_weight_start = random_normals(dtype, 160, 4.0, rng);
  const oracle::Result want = oracle::evaluate(c.in);
  for (const std::int64_t chunk : {1, 16, 512}) {
    const RunConfig chunked{GetParam().method, chunk};
    ASSERT_NO_THROW(check_case(c, want, chunked)) << describe(c, chunked);
  }
}

INSTANTIATE_TEST_SUITE_P(Op, WantsTest, testing::ValuesIn(methods_and_dtypes()), param_name);

}  // namespace
}  // namespace flce_test
