// SPDX-License-Identifier: Apache-2.0
// Options of route hopper that its first product takes: entropy and its gradient, argmax, bias and
// its gradient, softcap. Each against the oracle.
#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "gpu/hopper_case.hpp"

namespace flce_test {
namespace {

using flce::Dtype;
using flce::Method;

constexpr double kInfinity = std::numeric_limits<double>::infinity();

using HopperOptions = HopperTest;

TEST_P(HopperOptions, EntropyAndArgmaxOfAnyResidue) {
  for (const Sizes& sizes : kRagged) {
    Case c = option_case(sizes, 71);
    want_statistics(c);
    check(c);
    check(c, 64);
    if (HasFailure()) return;
  }
}

TEST_P(HopperOptions, LossAlone) {
  for (const bool has_bias : {false, true}) {
    for (const double softcap : {0.0, 20.0}) {
      Case c = option_case({300, 72, 1021}, 73);
      want_statistics(c);
      if (has_bias) add_bias(c, 2.0, 74);
      c.in.softcap = softcap;
      c.wants.grad_hidden = c.wants.grad_weight = c.wants.grad_bias = false;
      check(c);
      check(c, 100);
      if (HasFailure()) return;
    }
  }
}

// To 1e-5, whatever the offset was guessed to be.
TEST_P(HopperOptions, EntropyIsAsExactAsTheLogits) {
  for (const double size : {0.01, 1.0, 5.0, 30.0, 200.0}) {
    Rng rng(77);
    Case c = with_logits(120, 3000, [&](std::int64_t i, std::int64_t j) {
      return size * rng.normal() + (j == 1501 ? static_cast<double>(i) : 0.0);
    });
    want_statistics(c);
    const oracle::Result want = oracle::evaluate(c.in);
    const Results got = run(c);
    for (std::size_t i = 0; i < want.entropy.size(); ++i) {
      EXPECT_NEAR(got.entropy[i], want.entropy[i], 1e-5 * std::max(1.0, want.entropy[i]))
          << i << " of size " << size;
      EXPECT_EQ(got.argmax[i], want.argmax[i]) << i << " of size " << size;
    }
    check(c);
    if (HasFailure()) return;
  }
}

// Of equal logits the first, also across tiles.
TEST_P(HopperOptions, ArgmaxIsTheFirstOfEqualOnes) {
  Case c = with_logits(64, 1000, [](std::int64_t i, std::int64_t j) {
    return j == 40 + 9 * i || j == 41 + 9 * i || j == 999 ? 4.0 : 1.0;
  });
  want_statistics(c);
  const Results got = run(c);
  for (std::int64_t i = 0; i < 64; ++i) EXPECT_EQ(got.argmax[i], 40 + 9 * i) << i;
}

TEST_P(HopperOptions, BiasOfAnyResidue) {
  for (const Sizes& sizes : kRagged) {
    for (const Dtype dtype : {Dtype::kBF16, Dtype::kF32}) {
      Case c = option_case(sizes, 79);
      c.vector_dtype = dtype;
      add_bias(c, 3.0, 80);
      check(c);
      c.grad_bias_dtype = Dtype::kF32;
      c.in.scale = -1.7;
      c.in.temperature = 0.6;
      check(c, 64);
      if (HasFailure()) return;
    }
  }
}

TEST_P(HopperOptions, GradBiasAloneAndAddedTo) {
  for (const std::int64_t chunk : {0, 100}) {
    Case c = option_case({300, 40, 1500}, 83);
    add_bias(c, 1.0, 84);
    for (std::int64_t i = 0; i < 300; i += 2) c.in.target[i] = 77;
    Rng rng(85);
    c.grad_bias_start = random_normals(c.grad_bias_type(), 1500, 0.1, rng);
    check(c, chunk);
    c.wants.grad_weight = false;
    check(c, chunk);
    c.wants.grad_hidden = false;
    check(c, chunk);
    c.wants.grad_bias = false;
    c.wants.grad_hidden = true;
    c.grad_bias_start.clear();
    check(c, chunk);
    if (HasFailure()) return;
  }
}

// A bias that the sample of the vocabulary does not see, and one that moves every logit.
TEST_P(HopperOptions, LargeBias) {
  for (const double size : {-500.0, 90.0, 500.0, 1e4}) {
    Case c = option_case({200, 64, 1500}, 89);
    add_bias(c, 1.0, 90);
    c.in.bias[501] = round_to(Dtype::kBF16, size);
    want_statistics(c);
    check(c);
    for (double& bias : c.in.bias) bias = round_to(Dtype::kBF16, bias + size);
    check(c);
    if (HasFailure()) return;
  }
}

// What is left of a case when some vocabulary rows are taken away.
Case without_rows(const Case& c, const std::vector<std::int64_t>& kept) {
  Case less = c;
  less.in.vocab = static_cast<std::int64_t>(kept.size());
  less.in.w.clear();
  less.in.bias.clear();
  std::vector<std::int64_t> place(static_cast<std::size_t>(c.in.vocab), 0);
  for (std::size_t k = 0; k < kept.size(); ++k) {
    const auto row = c.in.w.begin() + kept[k] * c.in.hidden;
    less.in.w.insert(less.in.w.end(), row, row + c.in.hidden);
    less.in.bias.push_back(c.in.bias[kept[k]]);
    place[kept[k]] = static_cast<std::int64_t>(k);
  }
  for (std::int64_t& target : less.in.target) {
    if (target != c.in.ignore_index) target = place[target];
  }
  return less;
}

// Results of a case in the shape of that smaller case; the gradients of the other rows are zero.
Results of_rows(const Case& c, const Results& all, const std::vector<std::int64_t>& kept) {
  Results some = all;
  some.grad_weight.clear();
  some.grad_bias.clear();
  std::vector<bool> is_kept(static_cast<std::size_t>(c.in.vocab), false);
  for (const std::int64_t j : kept) {
    is_kept[j] = true;
    const auto row = all.grad_weight.begin() + j * c.in.hidden;
    some.grad_weight.insert(some.grad_weight.end(), row, row + c.in.hidden);
    some.grad_bias.push_back(all.grad_bias[j]);
  }
  for (std::int64_t j = 0; j < c.in.vocab; ++j) {
    if (is_kept[j]) continue;
    EXPECT_EQ(all.grad_bias[j], 0.0) << j;
    for (std::int64_t k = 0; k < c.in.hidden; ++k) {
      EXPECT_EQ(all.grad_weight[j * c.in.hidden + k], 0.0) << j << " " << k;
    }
  }
  return some;
}

TEST_P(HopperOptions, MaskedRowsAreAsIfTheyWereNotThere) {
  for (const std::int64_t stride : {2, 5, 7}) {
    Case c = hopper_case({150, 64, 1500}, 97);
    add_bias(c, 1.0, 98);
    c.wants.entropy = true;
    std::vector<std::int64_t> kept;
    for (std::int64_t j = 0; j < 1500; ++j) {
      // Whole tiles, too; the sample is of multiples of 5.
      const bool is_masked = j % stride == 0 || (j >= 384 && j < 800);
      if (is_masked) {
        c.in.bias[j] = -kInfinity;
      } else {
        kept.push_back(j);
      }
    }
    for (std::int64_t i = 0; i < 150; ++i) c.in.target[i] = kept[i * 3];
    const Case less = without_rows(c, kept);
    const Results got = of_rows(c, run(c), kept);
    expect_matches(less, oracle::evaluate(less.in), got, describe(less, {GetParam()}));
    if (HasFailure()) return;
  }
}

TEST_P(HopperOptions, AMaskedTargetIsAnInfiniteLoss) {
  Case c = hopper_case({40, 64, 600}, 101);
  add_bias(c, 1.0, 102);
  c.in.reduction = oracle::Reduction::kNone;
  for (std::int64_t i = 0; i < 40; ++i) c.in.target[i] = i;
  c.in.bias[7] = -kInfinity;
  const Results got = run(c);
  for (std::int64_t i = 0; i < 40; ++i) {
    EXPECT_EQ(std::isinf(got.loss[i]), i == 7) << i;
    EXPECT_FALSE(std::isnan(got.loss[i])) << i;
  }
  for (const double bias : {kInfinity, std::nan("")}) {
    c.in.bias[7] = bias;
    for (const double loss : run(c).loss) EXPECT_TRUE(std::isnan(loss)) << bias;
  }
  c.in.bias.assign(600, -kInfinity);
  for (const double loss : run(c).loss) EXPECT_TRUE(std::isnan(loss));
}

TEST_P(HopperOptions, SoftcapOfAnyResidue) {
  for (const Sizes& sizes : kRagged) {
    for (const double softcap : {1.0, 30.0}) {
      Case c = option_case(sizes, 103);
      c.in.softcap = softcap;
      want_statistics(c);
      check(c);
      c.in.scale = 3.0;
      c.in.temperature = 0.7;
      check(c, 64);
      if (HasFailure()) return;
    }
  }
}

// Far below the cap, near it, far beyond it.
TEST_P(HopperOptions, LogitsAroundTheCap) {
  for (const double size : {1e-3, 0.3, 5.0, 50.0, 1000.0}) {
    for (const double softcap : {5.0, 50.0}) {
      Rng rng(107);
      Case c =
          with_logits(80, 1500, [&](std::int64_t, std::int64_t) { return size * rng.normal(); });
      c.in.softcap = softcap;
      want_statistics(c);
      check(c);
      c.in.temperature = 0.25;
      check(c);
      if (HasFailure()) return;
    }
  }
}

TEST_P(HopperOptions, EverythingTogether) {
  for (const oracle::Reduction reduction :
       {oracle::Reduction::kMean, oracle::Reduction::kSum, oracle::Reduction::kNone}) {
    Case c = option_case({300, 64, 2100}, 109, Data::kPeaked);
    Rng rng(110);
    c.in.reduction = reduction;
    c.in.scale = 0.7;
    c.in.z_loss = 1e-3;
    for (int i = 0; i < 300; ++i) {
      c.in.temperature_per_token.push_back(round_to(Dtype::kBF16, rng.uniform(0.3, 3.0)));
    }
    c.in.class_weight = random_weights(c, 2100, rng);
    c.in.token_weight = random_weights(c, 300, rng);
    c.in.softcap = 15.0;
    add_bias(c, 1.0, 111);
    want_statistics(c);
    c.wants.z_loss = true;
    poison_ignored(c, rng);
    check(c);
    check(c, 90);
    c.grad_weight_dtype = Dtype::kF32;
    check(c, 90);
    if (HasFailure()) return;
  }
}

TEST_P(HopperOptions, PoisonInIgnoredRowsStaysThere) {
  for (const double softcap : {0.0, 10.0}) {
    Case c = option_case({260, 64, 700}, 113);
    Rng rng(114);
    ignore_some(c, 0.4, rng);
    add_bias(c, 1.0, 115);
    c.in.softcap = softcap;
    want_statistics(c);
    poison_ignored(c, rng);
    check(c);
    check(c, 100);
  }
}

TEST_P(HopperOptions, TheGradientOfTheEntropy) {
  if (GetParam() != Method::kRecompute) GTEST_SKIP() << "fused does not make it";
  for (const Sizes& sizes : kRagged) {
    for (const Data data : {Data::kRandom, Data::kPeaked, Data::kConfident}) {
      Case c = option_case(sizes, 127, data);
      add_entropy_gradient(c, 128);
      check(c);
      c.in.reduction = oracle::Reduction::kNone;
      Rng rng(129);
      c.in.grad_output = random_normals(c.vectors(), c.in.tokens, 1.0, rng);
      // Tokens whose gradient is that of one of the two, or of none.
      for (std::int64_t i = 0; i < c.in.tokens; ++i) {
        if (i % 4 == 1) c.in.grad_output[i] = 0.0;
        if (i % 8 == 2 || i % 8 == 5) c.in.grad_entropy[i] = 0.0;
      }
      check(c, 64);
      add_bias(c, 1.0, 130);
      c.in.softcap = 12.0;
      c.in.temperature = 0.8;
      poison_ignored(c, rng);
      check(c, 64);
      check(c, 64, flce::Pass::kForwardBackward);
      if (HasFailure()) return;
    }
  }
}

// More vocabulary than a slab of `recompute` has at most.
TEST_P(HopperOptions, SumsOverSlabs) {
  Case c = option_case({70, 24, 70001}, 131);
  add_bias(c, 1.0, 132);
  c.in.softcap = 20.0;
  want_statistics(c);
  c.in.target[4] = c.in.target[60] = slab_of(c);  // the first row of the second slab
  check(c, 32, flce::Pass::kForwardBackward);
  if (GetParam() == Method::kRecompute) add_entropy_gradient(c, 133);
  check(c);
}

INSTANTIATE_TEST_SUITE_P(Gpu, HopperOptions, testing::Values(Method::kFused, Method::kRecompute),
                         [](const auto& param) { return std::string(flce::name_of(param.param)); });

}  // namespace
}  // namespace flce_test
