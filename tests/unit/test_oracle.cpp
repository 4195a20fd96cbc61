// SPDX-License-Identifier: Apache-2.0
// The oracle itself: its gradients against finite differences of its losses, values worked out by
// hand, its rounding against the compiler's, and the unfused yardstick against it.
#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <functional>
#include <limits>
#include <numeric>

#include "oracle/formats.hpp"
#include "oracle/oracle.hpp"
#include "oracle/unfused.hpp"
#include "support/compare.hpp"
#include "support/params.hpp"

namespace flce_test {
namespace {

using flce::Dtype;

// What the gradients are the gradient of: upstream . loss + upstream of entropy . entropy.
double objective(const oracle::Input& in) {
  const oracle::Result result = oracle::evaluate(in);
  double sum = 0.0;
  for (std::size_t i = 0; i < result.loss.size(); ++i) {
    double upstream = 1.0;
    if (in.grad_output.size() == 1) upstream = in.grad_output[0];
    if (in.grad_output.size() > 1) upstream = in.grad_output[i];
    sum += upstream * result.loss[i];
  }
  for (std::size_t i = 0; i < in.grad_entropy.size(); ++i) {
    sum += in.grad_entropy[i] * result.entropy[i];
  }
  return sum;
}

// Central differences at up to `count` places of one operand.
void expect_gradient(oracle::Input in, std::vector<double> oracle::Input::*operand,
                     const std::vector<double>& gradient, std::uint64_t seed) {
  Rng rng(seed);
  const double size = 1.0 + std::abs(objective(in));
  for (int trial = 0; trial < 6 && !gradient.empty(); ++trial) {
    const std::int64_t at = rng.index(static_cast<std::int64_t>(gradient.size()));
    const double value = (in.*operand)[at];
    const double step = 1e-5 * (1.0 + std::abs(value));
    (in.*operand)[at] = value + step;
    const double above = objective(in);
    (in.*operand)[at] = value - step;
    const double below = objective(in);
    (in.*operand)[at] = value;
    const double slope = (above - below) / (2 * step);
    EXPECT_NEAR(gradient[at], slope, 2e-6 * (size + std::abs(slope))) << "seed " << seed;
  }
}

TEST(Oracle, GradientsAreTheSlopesOfTheLoss) {
  for (std::uint64_t seed = 0; seed < 150; ++seed) {
    Case c = random_case(Dtype::kF64, seed);
    if (c.in.tokens * c.in.vocab * c.in.hidden > 20000) continue;
    const std::vector<std::int64_t> targets = oracle::resolved_targets(c.in);
    const auto valid = std::count_if(targets.begin(), targets.end(),
                                     [](std::int64_t target) { return target >= 0; });
    if (valid == 0) continue;
    const oracle::Result result = oracle::evaluate(c.in);
    // Ignored tokens may hold NaN, at which there is nothing to differentiate.
    for (double& x : c.in.x) x = std::isfinite(x) ? x : 0.0;
    for (auto* vector : {&c.in.grad_output, &c.in.grad_entropy}) {
      for (double& value : *vector) value = std::isfinite(value) ? value : 0.0;
    }
    expect_gradient(c.in, &oracle::Input::x, result.grad_hidden, seed);
    expect_gradient(c.in, &oracle::Input::w, result.grad_weight, seed);
    if (!c.in.bias.empty()) expect_gradient(c.in, &oracle::Input::bias, result.grad_bias, seed);
  }
}

// The identity head over the given logits.
oracle::Input logits_of(std::vector<double> logits, std::int64_t vocab,
                        std::vector<std::int64_t> target) {
  oracle::Input in;
  in.tokens = static_cast<std::int64_t>(target.size());
  in.hidden = vocab;
  in.vocab = vocab;
  in.x = std::move(logits);
  in.w.assign(static_cast<std::size_t>(vocab * vocab), 0.0);
  for (std::int64_t j = 0; j < vocab; ++j) in.w[j * vocab + j] = 1.0;
  in.target = std::move(target);
  return in;
}

TEST(Oracle, PublishedValues) {
  oracle::Input smooth = logits_of({0, 0, 0, 0, 1, 2, 3, 4}, 4, {-100, 3});
  smooth.smoothing = 0.1;
  oracle::Result result = oracle::evaluate(smooth);
  EXPECT_NEAR(result.loss[0], 0.5901897, 5e-8);
  EXPECT_TRUE(all_near(result.grad_hidden,
                       {0, 0, 0, 0, 0.0070586, 0.0621443, 0.2118828, -0.2810857}, 5e-8));

  oracle::Input capped = logits_of({60, 0}, 2, {1});
  capped.softcap = 30;
  result = oracle::evaluate(capped);
  EXPECT_NEAR(result.loss[0], 28.9208274, 5e-8);
  EXPECT_TRUE(all_near(result.grad_hidden, {0.0706508, -1.0}, 5e-8));

  oracle::Input weighted = logits_of({0, 0, 0, 0, 1, 2, 3, 4}, 4, {0, 3});
  weighted.class_weight = {1, 2, 3, 4};
  EXPECT_NEAR(oracle::evaluate(weighted).loss[0], 0.6294106, 5e-8);
}

TEST(Oracle, ConfidentRowsAreExact) {
  // Two classes, p of the target is 1 / (1 + d): loss and gradient follow from d alone.
  for (const double d : {1e-3, 1e-7, 1e-12, 1e-18}) {
    const oracle::Result result = oracle::evaluate(logits_of({-std::log(d), 0}, 2, {0}));
    EXPECT_NEAR(result.loss[0] / std::log1p(d), 1.0, 1e-14) << d;
    EXPECT_NEAR(result.grad_hidden[0] / (-d / (1 + d)), 1.0, 1e-14) << d;
  }
}

TEST(Oracle, RefusesTargetsOutOfRange) {
  EXPECT_THROW(oracle::evaluate(logits_of({0, 0}, 2, {2})), std::out_of_range);
  EXPECT_THROW(oracle::evaluate(logits_of({0, 0}, 2, {-1})), std::out_of_range);
}

TEST(OracleFormats, RoundsToF32AsTheProcessorDoes) {
  Rng rng(7);
  for (int trial = 0; trial < 20000; ++trial) {
    const double value = std::ldexp(rng.normal(), static_cast<int>(rng.index(330)) - 170);
    const auto native = static_cast<float>(value);
    ASSERT_EQ(oracle::round_to(oracle::Format::kF32, value), static_cast<double>(native)) << value;
  }
}

TEST(OracleFormats, SixteenBitPatternsRoundTrip) {
  for (std::uint32_t bits = 0; bits < 0x10000; ++bits) {
    const auto pattern = static_cast<std::uint16_t>(bits);
    const double bf16 = oracle::decode_bf16(pattern);
    // bf16 is the upper half of an f32.
    ASSERT_TRUE(std::isnan(bf16) || bf16 == std::bit_cast<float>(bits << 16)) << bits;
    ASSERT_TRUE(std::isnan(bf16) || oracle::encode_bf16(bf16) == pattern) << bits;
    const double f16 = oracle::decode_f16(pattern);
    if (std::isnan(f16)) continue;
    ASSERT_EQ(oracle::encode_f16(f16), pattern);
    ASSERT_EQ(oracle::round_to(oracle::Format::kF16, f16), f16);
  }
}

TEST(OracleFormats, RoundsTiesToEvenAndOverflowsToInfinity) {
  using oracle::Format;
  EXPECT_EQ(oracle::round_to(Format::kBF16, 1.0 + 0x1p-8), 1.0);
  EXPECT_EQ(oracle::round_to(Format::kBF16, 1.0 + 0x3p-8), 1.0 + 0x1p-6);
  EXPECT_EQ(oracle::round_to(Format::kF16, 2049.0), 2048.0);
  EXPECT_EQ(oracle::round_to(Format::kF16, 65519.0), 65504.0);
  EXPECT_EQ(oracle::round_to(Format::kF16, 65520.0), std::numeric_limits<double>::infinity());
  EXPECT_EQ(oracle::round_to(Format::kF16, 0x1p-25), 0.0);
  EXPECT_EQ(oracle::round_to(Format::kF16, 0x3p-25), 0x1p-23);
  EXPECT_EQ(oracle::encode_f16(0x1p-24), 1);
}

class Unfused : public testing::TestWithParam<Dtype> {};

TEST_P(Unfused, ErrsByTheRoundingOfItsType) {
  const double unit = oracle::unit_roundoff(format_of(GetParam()));
  for (const Data data : {Data::kRandom, Data::kPeaked, Data::kCommonMean}) {
    Case c = basic_case({40, 64, 300}, GetParam(), 11, data);
    c.in.smoothing = 0.1;
    c.in.z_loss = 1e-3;
    c.in.softcap = 20.0;
    const oracle::Result exact = oracle::evaluate(c.in);
    const oracle::Unfused rough = oracle::unfused(c.in, format_of(GetParam()));
    EXPECT_LT(relative_error(rough.loss, exact.loss), 1e-5);
    for (const auto& [got, want] : {std::pair(&rough.grad_hidden, &exact.grad_hidden),
                                    std::pair(&rough.grad_weight, &exact.grad_weight)}) {
      const double error = relative_error(*got, *want);
      EXPECT_GT(error, 0.1 * unit);
      EXPECT_LT(error, 100 * unit + 1e-5);
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Types, Unfused, testing::Values(Dtype::kF32, Dtype::kBF16, Dtype::kF16),
                         dtype_name);

}  // namespace
}  // namespace flce_test
