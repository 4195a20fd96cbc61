// SPDX-License-Identifier: Apache-2.0
// Label smoothing by route hopper: an outer product beside the softmax's gradient, whose sums over
// the vocabulary and over tokens are made apart from the products. Each against the oracle.
#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "gpu/hopper_case.hpp"

namespace flce_test {
namespace {

using flce::Dtype;
using flce::Method;

using HopperSmoothing = HopperTest;

Case smooth_case(const Sizes& sizes, std::uint64_t seed, Data data = Data::kRandom) {
  Case c = option_case(sizes, seed, data);
  c.in.smoothing = 0.1;
  return c;
}

void add_class_weights(Case& c, std::uint64_t seed) {
  Rng rng(seed);
  c.in.class_weight = random_weights(c, c.in.vocab, rng);
}

TEST_P(HopperSmoothing, OfAnyResidue) {
  for (const Sizes& sizes : kRagged) {
    for (const Data data : {Data::kRandom, Data::kPeaked, Data::kConfident}) {
      Case c = smooth_case(sizes, 201, data);
      check(c);
      check(c, 64);
      c.in.smoothing = 0.7;
      c.in.scale = -1.3;
      c.in.temperature = 0.6;
      add_class_weights(c, 202);
      check(c);
      check(c, 64);
      if (HasFailure()) return;
    }
  }
}

// All of the gradient but the target's part is smoothing's.
TEST_P(HopperSmoothing, OfAllTheLabel) {
  for (const bool has_weights : {false, true}) {
    Case c = smooth_case({300, 64, 2100}, 203);
    c.in.smoothing = 1.0;
    if (has_weights) add_class_weights(c, 204);
    check(c);
    check(c, 100);
  }
}

TEST_P(HopperSmoothing, WithBiasAndStatistics) {
  for (const bool has_weights : {false, true}) {
    Case c = smooth_case({300, 72, 1021}, 205);
    if (has_weights) add_class_weights(c, 206);
    add_bias(c, 2.0, 207);
    want_statistics(c);
    c.in.z_loss = 1e-3;
    check(c);
    check(c, 100);
    Rng rng(208);
    c.grad_bias_start = random_normals(c.grad_bias_type(), 1021, 0.1, rng);
    check(c, 100);
    c.wants.grad_weight = false;
    check(c, 100);
    c.wants.grad_hidden = c.wants.grad_bias = false;
    c.grad_bias_start.clear();
    check(c);
    check(c, 100);
    if (HasFailure()) return;
  }
}

TEST_P(HopperSmoothing, GradWeightInF32AndAddedTo) {
  for (const Dtype dtype : {Dtype::kBF16, Dtype::kF32}) {
    for (const std::int64_t chunk : {0, 90}) {
      Case c = smooth_case({260, 72, 1300}, 209);
      add_class_weights(c, 210);
      c.grad_weight_dtype = dtype;
      check(c, chunk);
      Rng rng(211);
      c.grad_weight_start = random_normals(dtype, c.in.vocab * c.in.hidden, 0.01, rng);
      check(c, chunk);
      if (HasFailure()) return;
    }
  }
}

TEST_P(HopperSmoothing, UpstreamOfEachToken) {
  Case c = smooth_case({300, 64, 1500}, 213);
  Rng rng(214);
  c.in.reduction = oracle::Reduction::kNone;
  c.in.grad_output = random_normals(c.vectors(), 300, 1.0, rng);
  c.in.token_weight = random_weights(c, 300, rng);
  for (std::int64_t i = 0; i < 300; i += 3) c.in.grad_output[i] = 0.0;
  add_class_weights(c, 215);
  poison_ignored(c, rng);
  check(c, 128);
  if (GetParam() != Method::kRecompute) return;
  check(c, 128, flce::Pass::kForwardBackward);
  add_entropy_gradient(c, 216);
  check(c, 128, flce::Pass::kForwardBackward);
}

TEST_P(HopperSmoothing, ForwardThenBackward) {
  for (const std::int64_t chunk : {0, 100}) {
    Case c = smooth_case({260, 64, 1300}, 217);
    add_bias(c, 1.0, 218);
    check(c, chunk, flce::Pass::kForwardBackward);
    c.in.grad_output = {-2.5};
    check(c, chunk, flce::Pass::kForwardBackward);
  }
}

// A class that can never be: its weight is 0, its bias minus infinity.
TEST_P(HopperSmoothing, ClassesOfNoWeight) {
  Case c = smooth_case({200, 64, 900}, 219);
  add_bias(c, 1.0, 220);
  add_class_weights(c, 221);
  for (std::int64_t j = 0; j < 900; j += 7) {
    c.in.class_weight[j] = 0.0;
    c.in.bias[j] = -std::numeric_limits<double>::infinity();
  }
  for (std::int64_t& target : c.in.target) {
    if (target >= 0 && target % 7 == 0) ++target;
  }
  c.in.target[0] = 898;
  const Results got = run(c);
  for (const double loss : got.loss) EXPECT_TRUE(std::isfinite(loss));
  for (std::int64_t j = 0; j < 900; j += 7) {
    for (std::int64_t k = 0; k < 64; ++k) EXPECT_EQ(got.grad_weight[j * 64 + k], 0.0) << j;
  }
}

// What the smoothing wants of it is impossible; the gradients stay finite.
TEST_P(HopperSmoothing, AMaskedClassOfSomeWeightIsAnInfiniteLoss) {
  Case c = smooth_case({200, 64, 900}, 222);
  add_bias(c, 1.0, 223);
  c.in.bias[77] = -std::numeric_limits<double>::infinity();
  std::replace(c.in.target.begin(), c.in.target.end(), std::int64_t{77}, std::int64_t{78});
  const Results got = run(c);
  for (const double loss : got.loss) EXPECT_EQ(loss, std::numeric_limits<double>::infinity());
  for (const double grad : got.grad_hidden) ASSERT_TRUE(std::isfinite(grad));
  for (const double grad : got.grad_weight) ASSERT_TRUE(std::isfinite(grad));
  for (const double grad : got.grad_bias) ASSERT_TRUE(std::isfinite(grad));
}

TEST_P(HopperSmoothing, NoTokenHasATarget) {
  Case c = smooth_case({130, 64, 900}, 224);
  Rng rng(226);
  c.in.reduction = oracle::Reduction::kSum;
  std::fill(c.in.target.begin(), c.in.target.end(), c.in.ignore_index);
  poison_ignored(c, rng);
  check(c);
  check(c, 64);
}

TEST_P(HopperSmoothing, LargeLogits) {
  for (const double size : {20.0, 200.0, 1e4}) {
    Rng rng(225);
    Case c = with_logits(60, 1500, [&](std::int64_t, std::int64_t) { return size * rng.normal(); });
    c.in.smoothing = 0.2;
    check(c);
  }
}

TEST_P(HopperSmoothing, SumsOverSlabs) {
  Case c = smooth_case({70, 24, 70001}, 227);
  add_class_weights(c, 228);
  add_bias(c, 1.0, 229);
  c.in.target[4] = c.in.target[60] = slab_of(c);
  check(c);
  check(c, 32, flce::Pass::kForwardBackward);
}

INSTANTIATE_TEST_SUITE_P(Gpu, HopperSmoothing, testing::Values(Method::kFused, Method::kRecompute),
                         [](const auto& param) { return std::string(flce::name_of(param.param)); });

}  // namespace
}  // namespace flce_test
