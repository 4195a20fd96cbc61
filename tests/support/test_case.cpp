// SPDX-License-Identifier: Apache-2.0
#include "support/test_case.hpp"

#include <algorithm>
#include <cmath>
#include <limits>

#include "support/storage.hpp"

namespace flce_test {
namespace {

flce::Reduction reduction_of(oracle::Reduction reduction) {
  if (reduction == oracle::Reduction::kNone) return flce::Reduction::kNone;
  if (reduction == oracle::Reduction::kSum) return flce::Reduction::kSum;
  return flce::Reduction::kMean;
}

// Hidden rows along the weight row of their target, so that its logit stands far above the others.
void make_confident(Case& c, Rng& rng) {
  for (std::int64_t i = 0; i < c.in.tokens; ++i) {
    const double length = rng.uniform(16.0, 30.0);
    const double* w = c.in.w.data() + c.in.target[i] * c.in.hidden;
    double square = 0.0;
    for (std::int64_t k = 0; k < c.in.hidden; ++k) square += w[k] * w[k];
    for (std::int64_t k = 0; k < c.in.hidden; ++k) {
      double& x = c.in.x[i * c.in.hidden + k];
      x = std::clamp(0.1 * x + (square > 0 ? length * w[k] / square : 0.0), -200.0, 200.0);
    }
  }
}

void add_common_mean(Case& c, Rng& rng) {
  const double size = 4.0 / std::sqrt(static_cast<double>(c.in.hidden));
  for (std::int64_t k = 0; k < c.in.hidden; ++k) {
    const double mean = size * rng.normal();
    for (std::int64_t j = 0; j < c.in.vocab; ++j) c.in.w[j * c.in.hidden + k] += mean;
  }
}

}  // namespace

flce::Options options_of(const Case& c) {
  flce::Options options;
  options.reduction = reduction_of(c.in.reduction);
  options.ignore_index = c.in.ignore_index;
  options.label_smoothing = c.in.smoothing;
  options.z_loss = c.in.z_loss;
  options.softcap = c.in.softcap;
  options.scale = c.in.scale;
  options.temperature = c.in.temperature;
  if (c.in.has_normalizer && c.normalizer_dtype == flce::Dtype::kNone) {
    options.normalizer = c.in.normalizer;
    options.has_normalizer = true;
  }
  options.shift = c.in.shift;
  options.sequence_length = c.in.sequence_length;
  return options;
}

Case basic_case(const Sizes& sizes, flce::Dtype dtype, std::uint64_t seed, Data data) {
  Rng rng(seed);
  Case c;
  c.seed = seed;
  c.dtype = dtype;
  c.in.tokens = sizes.tokens;
  c.in.hidden = sizes.hidden;
  c.in.vocab = sizes.vocab;
  c.in.x.resize(static_cast<std::size_t>(sizes.tokens * sizes.hidden));
  c.in.w.resize(static_cast<std::size_t>(sizes.vocab * sizes.hidden));
  c.in.target.resize(static_cast<std::size_t>(sizes.tokens));
  const double gain = data == Data::kPeaked ? 8.0 : 1.0;
  const double size = gain / std::sqrt(static_cast<double>(sizes.hidden));
  for (double& value : c.in.x) value = rng.normal();
  for (double& value : c.in.w) value = size * rng.normal();
  for (std::int64_t& target : c.in.target) target = rng.index(sizes.vocab);
  if (data == Data::kConfident) make_confident(c, rng);
  if (data == Data::kCommonMean) add_common_mean(c, rng);
  round_all(dtype, c.in.x);
  round_all(dtype, c.in.w);
  return c;
}

void ignore_some(Case& c, double share, Rng& rng) {
  for (std::int64_t& target : c.in.target) {
    if (rng.chance(share)) target = c.in.ignore_index;
  }
}

void poison_ignored(Case& c, Rng& rng) {
  const std::vector<std::int64_t> targets = oracle::resolved_targets(c.in);
  const auto poison = [&] {
    return rng.pick({std::numeric_limits<double>::quiet_NaN(),
                     std::numeric_limits<double>::infinity(),
                     -std::numeric_limits<double>::infinity()});
  };
  for (std::int64_t i = 0; i < c.in.tokens; ++i) {
    if (targets[i] >= 0) continue;
    for (std::int64_t k = 0; k < c.in.hidden; ++k) {
      if (rng.chance(0.5)) c.in.x[i * c.in.hidden + k] = poison();
    }
    if (!c.in.token_weight.empty()) c.in.token_weight[i] = poison();
    if (!c.in.temperature_per_token.empty()) c.in.temperature_per_token[i] = poison();
    if (c.in.grad_output.size() > 1) c.in.grad_output[i] = poison();
    if (!c.in.grad_entropy.empty()) c.in.grad_entropy[i] = poison();
  }
}

std::vector<double> random_weights(const Case& c, std::int64_t count, Rng& rng) {
  std::vector<double> values(static_cast<std::size_t>(count));
  for (double& value : values) value = round_to(c.vectors(), rng.uniform(0.25, 2.0));
  return values;
}

std::vector<double> random_normals(flce::Dtype dtype, std::int64_t count, double size, Rng& rng) {
  std::vector<double> values(static_cast<std::size_t>(count));
  for (double& value : values) value = round_to(dtype, size * rng.normal());
  return values;
}

}  // namespace flce_test
