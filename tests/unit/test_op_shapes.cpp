// SPDX-License-Identifier: Apache-2.0
// Sizes: one of everything, nothing of a thing, and sizes around every tile and chunk.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "support/compare.hpp"
#include "support/params.hpp"

namespace flce_test {
namespace {

class Shapes : public testing::TestWithParam<MethodAndDtype> {
 protected:
  void check(Case& c, const std::vector<std::int64_t>& chunks) {
    const oracle::Result want = oracle::evaluate(c.in);
    for (const std::int64_t chunk : chunks) {
      const RunConfig config{GetParam().method, chunk};
      ASSERT_NO_THROW(check_case(c, want, config)) << describe(c, config);
    }
  }
};

Case with_everything(const Sizes& sizes, flce::Dtype dtype) {
  Case c = basic_case(sizes, dtype, 3);
  Rng rng(5);
  c.in.bias = random_normals(dtype, sizes.vocab, 1.0, rng);
  c.wants = {.grad_bias = true,
             .lse = true,
             .logprob = true,
             .entropy = true,
             .argmax = true,
             .num_correct = true,
             .num_valid = true,
             .topk = std::min<std::int64_t>(sizes.vocab, 3)};
  c.in.topk = c.wants.topk;
  return c;
}

TEST_P(Shapes, SmallestSizes) {
  for (const std::int64_t tokens : {1, 2, 3}) {
    for (const std::int64_t hidden : {1, 2, 5}) {
      for (const std::int64_t vocab : {1, 2, 3}) {
        Case c = with_everything({tokens, hidden, vocab}, GetParam().dtype);
        check(c, {0, 1, 2});
      }
    }
  }
}

TEST_P(Shapes, RaggedSizes) {
  // One below, at and above powers of two and the tiles of the CPU kernels (96 and 768 tokens, 192
  // classes, 64 and 256 terms of a sum).
  const std::vector<Sizes> ragged = {{13, 31, 127}, {14, 32, 128}, {15, 33, 129},  {16, 15, 255},
                                     {17, 64, 257}, {111, 7, 33},  {113, 16, 31},  {95, 63, 191},
                                     {96, 65, 192}, {97, 4, 193},  {29, 65, 1000}, {8, 257, 384},
                                     {481, 3, 385}, {769, 5, 50},  {7, 129, 577},  {25, 1, 193}};
  for (const Sizes& sizes : ragged) {
    Case c = with_everything(sizes, GetParam().dtype);
    check(c, {0, sizes.tokens - 1, sizes.tokens});
  }
}

TEST_P(Shapes, ChunksOfEveryKind) {
  Case c = with_everything({37, 24, 150}, GetParam().dtype);
  check(c, {1, 2, 9, 18, 36, 37, 38, 100000});  // 36 and 18 leave a last chunk of one row
}

TEST_P(Shapes, OneClassHasNoLossAndNoGradient) {
  Case c = with_everything({5, 8, 1}, GetParam().dtype);
  const Outcome outcome = run_case(c, {GetParam().method, 2});
  EXPECT_TRUE(all_zero(outcome.results.loss));
  EXPECT_TRUE(all_zero(outcome.results.entropy));
  EXPECT_TRUE(all_zero(outcome.results.grad_hidden));
  EXPECT_TRUE(all_zero(outcome.results.grad_weight));
  EXPECT_TRUE(all_zero(outcome.results.grad_bias));
}

TEST_P(Shapes, NoTokens) {
  for (const oracle::Reduction reduction :
       {oracle::Reduction::kNone, oracle::Reduction::kSum, oracle::Reduction::kMean}) {
    for (const std::int64_t chunk : {0, 1, 1024}) {
      Case c = with_everything({0, 4, 7}, GetParam().dtype);
      c.in.reduction = reduction;
      const RunConfig config{GetParam().method, chunk};
      check(c, {chunk});
      const Results results = run_case(c, config).results;
      EXPECT_EQ(results.loss.size(), reduction == oracle::Reduction::kNone ? 0U : 1U);
      EXPECT_TRUE(reduction != oracle::Reduction::kMean || std::isnan(results.loss[0]));
      EXPECT_TRUE(reduction != oracle::Reduction::kSum || results.loss[0] == 0.0);
      EXPECT_TRUE(all_zero(results.grad_weight));
      EXPECT_EQ(results.num_valid, std::vector<std::int64_t>{0});
    }
  }
}

TEST_P(Shapes, NoTokensLeaveAccumulatedGradientsAlone) {
  Case c = with_everything({0, 4, 7}, GetParam().dtype);
  Rng rng(1);
  c.grad_weight_start = random_normals(GetParam().dtype, 28, 1.0, rng);
  c.grad_bias_start = random_normals(GetParam().dtype, 7, 1.0, rng);
  const Results results = run_case(c, {GetParam().method}).results;
  EXPECT_EQ(results.grad_weight, c.grad_weight_start);
  EXPECT_EQ(results.grad_bias, c.grad_bias_start);
}

TEST_P(Shapes, WideVocabularyAndWideHidden) {
  Case wide = with_everything({3, 4, 9001}, GetParam().dtype);
  check(wide, {0, 2});
  Case deep = with_everything({9, 1031, 40}, GetParam().dtype);
  check(deep, {0, 4});
}

INSTANTIATE_TEST_SUITE_P(Op, Shapes, testing::ValuesIn(methods_and_dtypes()), param_name);

}  // namespace
}  // namespace flce_test
