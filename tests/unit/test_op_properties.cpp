// SPDX-License-Identifier: Apache-2.0
// Properties that need no reference: gradients of a softmax sum to zero, splitting and permuting
// change nothing, everything is linear in the upstream.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <numeric>

#include "support/compare.hpp"
#include "support/params.hpp"
#include "support/storage.hpp"

namespace flce_test {
namespace {

using flce::Dtype;

class Properties : public testing::TestWithParam<MethodAndDtype> {
 protected:
  Results run(const Case& c, std::int64_t chunk = 8) const {
    return run_case(c, {GetParam().method, chunk}).results;
  }
  // What one rounding of a result, or of an operand of its products, may change.
  double unit() const { return oracle::unit_roundoff(format_of(GetParam().dtype)); }
};

// An identity head: hidden are the logits, grad_hidden is the logit gradient.
Case identity_case(std::int64_t tokens, std::int64_t vocab, double size, Dtype dtype) {
  Case c = basic_case({tokens, vocab, vocab}, dtype, 109);
  for (double& x : c.in.x) x = round_to(dtype, size * x);
  for (std::int64_t j = 0; j < vocab; ++j) {
    for (std::int64_t k = 0; k < vocab; ++k) c.in.w[j * vocab + k] = j == k ? 1.0 : 0.0;
  }
  return c;
}

TEST_P(Properties, RowsOfTheLogitGradientSumToZero) {
  for (const double size : {1.0, 10.0, 40.0}) {
    for (const double smoothing : {0.0, 0.2}) {
      Case c = identity_case(12, 70, size, GetParam().dtype);
      c.in.reduction = oracle::Reduction::kSum;
      c.in.smoothing = smoothing;
      const Results results = run(c);
      for (std::int64_t i = 0; i < 12; ++i) {
        double sum = 0.0;
        double magnitude = 0.0;
        for (std::int64_t j = 0; j < 70; ++j) {
          sum += results.grad_hidden[i * 70 + j];
          magnitude += std::abs(results.grad_hidden[i * 70 + j]);
        }
        EXPECT_LE(std::abs(sum), (2 * unit() + 2e-6 * unit() / 0x1p-24) * magnitude + 70 * 0x1p-24)
            << "row " << i << " size " << size;
      }
    }
  }
}

TEST_P(Properties, GradientsOverTheVocabularySumToZero) {
  Case c = basic_case({30, 16, 333}, GetParam().dtype, 113);
  Rng rng(127);
  c.in.bias = random_normals(GetParam().dtype, 333, 1.0, rng);
  c.in.reduction = oracle::Reduction::kSum;
  c.wants.grad_bias = true;
  const Results results = run(c);
  const oracle::Result want = oracle::evaluate(c.in);
  double sum = 0.0;
  double magnitude = 0.0;
  for (const double value : results.grad_bias) {
    sum += value;
    magnitude += std::abs(value);
  }
  EXPECT_LE(std::abs(sum), (unit() + 1e-6 * unit() / 0x1p-24) * magnitude);
  for (std::int64_t k = 0; k < 16; ++k) {
    double column = 0.0;
    for (std::int64_t j = 0; j < 333; ++j) column += results.grad_weight[j * 16 + k];
    EXPECT_LE(std::abs(column), 10 * (unit() + 0x1p-50) * want.conditioning.grad_weight) << k;
  }
}

TEST_P(Properties, TwoAccumulatingCallsAreOne) {
  const Dtype dtype = GetParam().dtype;
  Case whole = basic_case({40, 12, 101}, dtype, 131);
  Rng rng(137);
  whole.in.bias = random_normals(dtype, 101, 1.0, rng);
  ignore_some(whole, 0.25, rng);
  whole.wants.grad_bias = true;
  if (dtype != Dtype::kF64) whole.grad_weight_dtype = whole.grad_bias_dtype = Dtype::kF32;
  const double count = oracle::evaluate(whole.in).divisor;
  const Results mean = run(whole);
  for (const std::int64_t cut : {1, 13, 39}) {
    double loss = 0.0;
    std::vector<double> grad_weight(101 * 12, 0.0);
    std::vector<double> grad_bias(101, 0.0);
    std::vector<double> grad_hidden;
    for (int half = 0; half < 2; ++half) {
      Case part = whole;
      const std::int64_t begin = half == 0 ? 0 : cut;
      const std::int64_t end = half == 0 ? cut : 40;
      part.in.tokens = end - begin;
      part.in.x.assign(whole.in.x.begin() + begin * 12, whole.in.x.begin() + end * 12);
      part.in.target.assign(whole.in.target.begin() + begin, whole.in.target.begin() + end);
      part.in.reduction = oracle::Reduction::kSum;
      part.in.has_normalizer = true;
      part.in.normalizer = count;
      part.grad_weight_start = grad_weight;
      part.grad_bias_start = grad_bias;
      const Results results = run(part);
      loss += results.loss[0];
      grad_weight = results.grad_weight;
      grad_bias = results.grad_bias;
      grad_hidden.insert(grad_hidden.end(), results.grad_hidden.begin(), results.grad_hidden.end());
    }
    const double tolerance = dtype == Dtype::kF64 ? 1e-12 : 4e-6;
    EXPECT_LE(std::abs(loss - mean.loss[0]), tolerance * mean.loss[0]) << cut;
    EXPECT_LE(relative_error(grad_weight, mean.grad_weight), std::max(tolerance, unit())) << cut;
    EXPECT_LE(relative_error(grad_bias, mean.grad_bias), tolerance) << cut;
    EXPECT_LE(relative_error(grad_hidden, mean.grad_hidden), std::max(tolerance, unit())) << cut;
  }
}

TEST_P(Properties, PermutingTheVocabularyPermutesGradWeight) {
  const Case c = basic_case({24, 14, 150}, GetParam().dtype, 139);
  std::vector<std::int64_t> order(150);
  std::iota(order.begin(), order.end(), 0);
  Rng rng(149);
  for (std::int64_t j = 149; j > 0; --j) std::swap(order[j], order[rng.index(j + 1)]);
  Case permuted = c;
  for (std::int64_t j = 0; j < 150; ++j) {
    std::copy_n(c.in.w.begin() + order[j] * 14, 14, permuted.in.w.begin() + j * 14);
    for (std::int64_t i = 0; i < 24; ++i) {
      if (c.in.target[i] == order[j]) permuted.in.target[i] = j;
    }
  }
  const Results plain = run(c);
  const Results moved = run(permuted);
  std::vector<double> back(plain.grad_weight.size());
  for (std::int64_t j = 0; j < 150; ++j) {
    std::copy_n(moved.grad_weight.begin() + j * 14, 14, back.begin() + order[j] * 14);
  }
  const double tolerance = GetParam().dtype == Dtype::kF64 ? 1e-12 : 2e-6;
  EXPECT_LE(std::abs(moved.loss[0] - plain.loss[0]), tolerance * plain.loss[0]);
  EXPECT_LE(relative_error(back, plain.grad_weight), tolerance + 2 * unit());
  EXPECT_LE(relative_error(moved.grad_hidden, plain.grad_hidden), tolerance + 2 * unit());
}

TEST_P(Properties, GradientsAreLinearInTheUpstream) {
  Case c = basic_case({24, 14, 150}, GetParam().dtype, 151);
  const Results base = run(c);
  // The logit gradient, the sum over up to 150 terms, and the output are rounded anew.
  const double tolerance = 6 * unit() + 1e-15;
  for (const double upstream : {-2.5, 4.0, 0.5}) {
    c.in.grad_output = {upstream};
    const Results scaled = run(c);
    std::vector<double> want = base.grad_hidden;
    for (double& value : want) value *= upstream;
    EXPECT_LE(relative_error(scaled.grad_hidden, want), tolerance);
    want = base.grad_weight;
    for (double& value : want) value *= upstream;
    EXPECT_LE(relative_error(scaled.grad_weight, want), tolerance);
  }
}

TEST_P(Properties, TheLossIsNeverNegative) {
  for (std::uint64_t seed = 0; seed < 12; ++seed) {
    for (const Data data : {Data::kRandom, Data::kPeaked, Data::kConfident}) {
      Case c = basic_case({16, 24, 60}, GetParam().dtype, seed, data);
      Rng rng(seed);
      c.in.bias = random_normals(GetParam().dtype, 60, 2.0, rng);
      c.in.reduction = oracle::Reduction::kNone;
      c.wants.logprob = true;
      const Results results = run(c);
      for (const double loss : results.loss) EXPECT_GE(loss, 0.0) << seed;
      for (const double logprob : results.logprob) EXPECT_LE(logprob, 0.0) << seed;
    }
  }
}

TEST_P(Properties, TiesGoToTheSmallerIndex) {
  // Small integers: logits are exact and often equal.
  Case c = basic_case({20, 6, 40}, GetParam().dtype, 157);
  Rng rng(163);
  for (double& x : c.in.x) x = static_cast<double>(rng.index(5) - 2);
  for (double& w : c.in.w) w = static_cast<double>(rng.index(3) - 1);
  c.wants = {.argmax = true, .num_correct = true, .topk = 6};
  c.in.topk = 6;
  const oracle::Result want = oracle::evaluate(c.in);
  const Results results = run(c);
  EXPECT_EQ(results.argmax, want.argmax);
  EXPECT_EQ(results.num_correct[0], want.num_correct);
  EXPECT_EQ(results.topk_index, want.topk_index);
}

INSTANTIATE_TEST_SUITE_P(Op, Properties, testing::ValuesIn(methods_and_dtypes()), param_name);

}  // namespace
}  // namespace flce_test
