// SPDX-License-Identifier: Apache-2.0
// Where vectors and tiles have edges: fewer tokens than a panel, denormal numbers, infinite logits,
// chunks without a target. CMakeLists.txt repeats these tests on every table of kernels.
#include <gtest/gtest.h>

#include <array>
#include <cmath>
#include <limits>
#include <vector>

#include "support/compare.hpp"
#include "support/device.hpp"
#include "support/params.hpp"
#include "support/storage.hpp"

namespace flce_test {
namespace {

using flce::Dtype;

constexpr double kInfinity = std::numeric_limits<double>::infinity();

class Edges : public testing::TestWithParam<MethodAndDtype> {
 protected:
  RunConfig config(std::int64_t chunk = 8) const { return {GetParam().method, chunk}; }
  void check(const Case& c, const RunConfig& how) const {
    ASSERT_NO_THROW(check_case(c, oracle::evaluate(c.in), how)) << describe(c, how);
  }
};

Case edge_case(const Sizes& sizes, Dtype dtype, std::uint64_t seed) {
  Case c = basic_case(sizes, dtype, seed);
  Rng rng(seed + 1);
  c.in.bias = random_normals(dtype, sizes.vocab, 1.0, rng);
  c.wants = {.grad_bias = true, .lse = true, .logprob = true, .entropy = true, .argmax = true};
  return c;
}

// The smallest normal number of a type, a denormal of which is any part of it.
double smallest_normal(Dtype dtype) {
  if (dtype == Dtype::kF64) return std::numeric_limits<double>::min();
  return dtype == Dtype::kF16 ? 0x1p-14 : double{std::numeric_limits<float>::min()};
}

TEST_P(Edges, FewerTokensThanAPanel) {
  for (std::int64_t tokens = 1; tokens <= 9; ++tokens) {
    for (const std::int64_t vocab : {1, 5, 47, 193}) {
      Case c = edge_case({tokens, 17, vocab}, GetParam().dtype, 700 + tokens);
      for (const std::int64_t chunk : {0, 1, 3}) check(c, config(chunk));
    }
  }
}

// Denormal hidden rows: the logits are the bias, and grad_weight is denormal itself. A product may
// take denormals as zero (vdpbf16ps does): an error below the smallest normal number a term.
TEST_P(Edges, DenormalHiddenRows) {
  const Dtype dtype = GetParam().dtype;
  const double tiny = smallest_normal(dtype);
  Case c = edge_case({21, 18, 205}, dtype, 720);
  Rng rng(721);
  for (double& x : c.in.x) x = round_to(dtype, tiny * rng.uniform(-0.9, 0.9));
  const oracle::Result want = oracle::evaluate(c.in);
  const Results got = run_case(c, config()).results;
  EXPECT_TRUE(all_near(got.loss, want.loss, 1e-5));
  EXPECT_TRUE(all_near(got.lse, want.lse, 1e-5));
  EXPECT_LE(relative_error(got.grad_hidden, want.grad_hidden), 1e-2);
  EXPECT_LE(relative_error(got.grad_bias, want.grad_bias), 1e-2);
  ASSERT_EQ(got.grad_weight.size(), want.grad_weight.size());
  for (std::size_t i = 0; i < want.grad_weight.size(); ++i) {
    ASSERT_NEAR(got.grad_weight[i], want.grad_weight[i], tiny) << i;
  }
}

// Denormals among normal numbers, in both operands: nothing but themselves may be lost.
TEST_P(Edges, DenormalsAmongNormalNumbers) {
  const Dtype dtype = GetParam().dtype;
  const double tiny = smallest_normal(dtype);
  Case c = edge_case({21, 33, 205}, dtype, 730);
  Rng rng(731);
  for (std::vector<double>* values : {&c.in.x, &c.in.w}) {
    for (double& value : *values) {
      if (rng.uniform(0.0, 1.0) < 0.3) value = round_to(dtype, tiny * rng.uniform(-0.9, 0.9));
    }
  }
  check(c, config());
}

// Logits so far below the row's maximum that their exponentials are denormal or nothing: f32 ends
// at 87.3 (and 103), f64 at 708.
TEST_P(Edges, ExponentialsBelowTheNormalRange) {
  const Dtype dtype = GetParam().dtype;
  Case c = edge_case({19, 12, 205}, dtype, 740);
  for (std::int64_t j = 0; j < 205; ++j) {
    const double depth = dtype == Dtype::kF64 ? 700.0 : 84.0;
    if (j % 3 != 0) c.in.bias[j] = round_to(dtype, -(depth + 0.25 * static_cast<double>(j % 100)));
  }
  for (std::int64_t& target : c.in.target) target = target / 3 * 3;
  check(c, config());
  c.in.target[4] = 1;  // a target that almost cannot be
  check(c, config());
}

TEST_P(Edges, AWholeTileAtMinusInfinity) {
  Case c = edge_case({19, 12, 600}, GetParam().dtype, 750);
  for (std::int64_t j = 192; j < 384; ++j) c.in.bias[j] = -kInfinity;
  for (std::int64_t& target : c.in.target) target = target >= 192 && target < 384 ? 0 : target;
  check(c, config());
  for (std::int64_t j = 0; j < 599; ++j) c.in.bias[j] = -kInfinity;  // one class is left
  c.in.target.assign(19, 599);
  check(c, config());
  const Results got = run_case(c, config()).results;
  EXPECT_TRUE(all_zero(got.loss));
  EXPECT_TRUE(all_zero(got.grad_weight));
}

// The mean over tokens whose classes weigh nothing is 0 / 0, in whatever the loss is made of.
TEST_P(Edges, AMeanOverClassesThatWeighNothing) {
  for (const bool has_more : {false, true}) {
    Case c = edge_case({19, 12, 205}, GetParam().dtype, 765);
    c.wants.z_loss = true;
    c.in.class_weight.assign(205, 1.0);
    for (std::int64_t j = 0; j < 100; ++j) c.in.class_weight[j] = 0.0;
    for (std::int64_t& target : c.in.target) target %= 100;
    c.in.target[3] = c.in.target[11] = c.in.ignore_index;
    if (has_more) {
      c.in.smoothing = 0.1;
      c.in.z_loss = 1e-3;
    }
    const Results got = run_case(c, config()).results;
    for (const auto* values : {&got.loss, &got.z_loss, &got.grad_weight, &got.grad_bias}) {
      ASSERT_FALSE(values->empty());
      for (const double value : *values) ASSERT_TRUE(std::isnan(value));
    }
    for (std::int64_t i = 0; i < 19; ++i) {
      const bool is_ignored = c.in.target[i] == c.in.ignore_index;
      for (std::int64_t h = 0; h < 12; ++h) {
        const double value = got.grad_hidden[i * 12 + h];
        ASSERT_TRUE(is_ignored ? value == 0.0 : std::isnan(value)) << i << ' ' << h;
      }
    }
    ASSERT_TRUE(std::isnan(oracle::evaluate(c.in).loss[0]));
  }
}

// Near the ends of f32, where a product of two options may be beyond them.
TEST_P(Edges, OptionsNearTheEndsOfTheirRange) {
  if (on_cuda()) GTEST_SKIP() << "untried on a card";
  const std::vector<std::array<double, 3>> all = {
      {1.2e-38, 1.0, 1.0},  {1e30, 1.0, 1.0},     {3e38, 1.0, 0.5}, {1e30, 1.0, 1e-12},
      {0.0, 1.2e-38, 1.0},  {0.0, 1e-3, 1.2e-38}, {0.0, 1.0, 3e38}, {30.0, 1.0, 1e30},
      {5.0, -1.2e-38, 1.0}, {0.0, 1e30, 1e30}};
  for (const auto& [softcap, scale, temperature] : all) {
    Case c = edge_case({19, 12, 205}, GetParam().dtype, 770);
    c.in.softcap = softcap;
    c.in.scale = scale;
    c.in.temperature = temperature;
    SCOPED_TRACE(describe(c, config()));
    const oracle::Result want = oracle::evaluate(c.in);
    const Results got = run_case(c, config()).results;
    EXPECT_TRUE(all_near(got.loss, want.loss, 1e-3 * std::abs(want.loss[0])));
    for (const double value : got.grad_hidden) EXPECT_FALSE(std::isnan(value));
  }
}

// A logit of +infinity has no log-softmax: the row's loss is no number, and says so. Tokens without
// a target are not touched by it.
TEST_P(Edges, PlusInfinityComesOut) {
  for (const std::int64_t where : {0, 100, 204}) {
    Case c = edge_case({19, 12, 205}, GetParam().dtype, 760);
    c.in.reduction = oracle::Reduction::kNone;
    c.in.bias[where] = kInfinity;
    c.in.target[3] = c.in.target[11] = c.in.ignore_index;
    const Results got = run_case(c, config()).results;
    for (std::int64_t i = 0; i < 19; ++i) {
      const bool is_ignored = c.in.target[i] == c.in.ignore_index;
      EXPECT_EQ(std::isfinite(got.loss[i]), is_ignored) << i;
      EXPECT_EQ(std::isfinite(got.lse[i]), is_ignored) << i;
      for (std::int64_t h = 0; is_ignored && h < 12; ++h) {
        EXPECT_EQ(got.grad_hidden[i * 12 + h], 0.0) << i;
      }
    }
    // Which weight rows lose their gradient is not promised; none is silently a number.
    EXPECT_FALSE(std::isfinite(got.grad_weight[where * 12]));
  }
}

// Chunks in which no token has a target, at each place, with NaN and infinity in their rows.
TEST_P(Edges, ChunksWithoutATarget) {
  for (const std::int64_t first : {0, 8, 16}) {
    for (const oracle::Reduction reduction : {oracle::Reduction::kMean, oracle::Reduction::kNone}) {
      Case c = edge_case({26, 18, 205}, GetParam().dtype, 770);
      c.in.reduction = reduction;
      for (std::int64_t i = first; i < first + 8; ++i) c.in.target[i] = c.in.ignore_index;
      if (first == 16) c.in.target[24] = c.in.target[25] = c.in.ignore_index;  // the ragged rest
      Rng rng(771);
      poison_ignored(c, rng);
      for (const std::int64_t chunk : {8, 4, 0}) check(c, config(chunk));
      const Results got = run_case(c, config()).results;
      for (std::int64_t i = first * 18; i < (first + 8) * 18; ++i) {
        ASSERT_EQ(got.grad_hidden[i], 0.0) << i;
      }
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Op, Edges, testing::ValuesIn(methods_and_dtypes()), param_name);

}  // namespace
}  // namespace flce_test
