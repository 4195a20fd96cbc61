// SPDX-License-Identifier: Apache-2.0
// What is done once a token, in double: its results and the coefficients of its gradient, from its
// statistics. The formulas are those of math/row.hpp.
#pragma once

#include "kernels/portable/element.cuh"

namespace flce::cuda {

__device__ inline LossParams loss_params(const Call& call) {
  LossParams params;
  params.label_smoothing = call.label_smoothing;
  params.z_loss = call.z_loss;
  params.vocab = static_cast<double>(call.vocab_total);
  params.class_weight_sum = call.totals->class_weight_sum;
  return params;
}

__device__ inline double class_weight_of(const Call& call, std::int64_t row) {
  return call.class_weight_in.dtype != Dtype::kNone ? load_real(call.class_weight_in, row) : 1.0;
}

__device__ inline double token_weight_of(const Call& call, std::int64_t token) {
  return call.token_weight.dtype != Dtype::kNone ? load_real(call.token_weight, token) : 1.0;
}

__device__ inline double temperature_of(const Call& call, std::int64_t token) {
  return call.temperatures.dtype != Dtype::kNone ? load_real(call.temperatures, token)
                                                 : call.temperature;
}

// What the sum of the losses is divided by.
__device__ inline double divisor_of(const Call& call) {
  if (call.reduction == Reduction::kMean) return mean_divisor(call.totals->target_weight_sum);
  if (call.normalizer_in.dtype != Dtype::kNone) return load_real(call.normalizer_in, 0);
  return call.has_normalizer ? call.normalizer : 1.0;
}

// The gradient that arrives at a token's loss, token weight and divisor included.
__device__ inline double upstream_of(const Call& call, std::int64_t token) {
  double upstream = 1.0;
  if (!call.unit_upstream && call.upstream != Upstream::kOne) {
    upstream = load_real(call.grad_output, call.upstream == Upstream::kPerToken ? token : 0);
  }
  return upstream * token_weight_of(call, token) / divisor_of(call);
}

__device__ inline double grad_entropy_of(const Call& call, std::int64_t token) {
  return call.grad_entropy.dtype != Dtype::kNone ? load_real(call.grad_entropy, token) : 0.0;
}

__device__ inline double quiet_nan() { return __longlong_as_double(0x7ff8000000000000LL); }

// The outputs of a token without a target (0) or with one outside the vocabulary (loss NaN).
static __device__ __noinline__ void store_no_target(const Call& call, std::int64_t token,
                                                    TokenState& state) {
  const bool is_out = state.target == kOutOfRange;
  state.loss = is_out ? quiet_nan() : 0.0;
  state.z_part = state.loss;
  for (const RealsOut* out : {&call.lse, &call.logprob, &call.entropy}) {
    store_real(*out, token, state.loss);
  }
  store_integer(call.argmax, token, 0);
  if (call.reduction == Reduction::kNone) {
    store_real(call.loss, token, state.loss);
    store_real(call.z_part, token, state.loss);
  }
}

// The outputs of a token with a target; also its loss for the sum.
static __device__ __noinline__ void store_token(const Call& call, std::int64_t token,
                                                TokenState& state) {
  const RowStats& stats = state.stats;
  const RowLoss row = loss_of_row(stats, loss_params(call), class_weight_of(call, state.target));
  const double weight = token_weight_of(call, token);
  state.loss = weight * row.loss;
  state.z_part = weight * row.z_part;
  store_real(call.lse, token, row.lse);
  store_real(call.logprob, token, row.logprob);
  if (call.entropy.dtype != Dtype::kNone) store_real(call.entropy, token, entropy_of_row(stats));
  store_integer(call.argmax, token, stats.best_index < 0 ? 0 : stats.best_index);
  if (call.reduction == Reduction::kNone) {
    store_real(call.loss, token, state.loss);
    store_real(call.z_part, token, state.z_part);
  }
}

// The part of a token's gradient that does not depend on its logits.
__device__ inline TokenGradient factors_of_token(const Call& call, std::int64_t token,
                                                 std::int64_t target) {
  TokenGradient g;
  if (target < 0) return g;
  const double temperature = temperature_of(call, token);
  const double power = call.scales_gradient ? call.gradient_scale->power : 1.0;
  g.factor = upstream_of(call, token) / temperature * power;
  g.entropy_factor = grad_entropy_of(call, token) / temperature * power;
  g.class_weight = class_weight_of(call, target);
  const std::int64_t local = target - call.shard_begin;
  if (local >= 0 && local < call.vocab) g.target = local;
  return g;
}

// The rest of it, from the token's statistics.
__device__ inline void add_statistics(const RowStats& stats, const LossParams& params,
                                      TokenGradient& g) {
  g.row = gradient_of_row(stats, params, g.class_weight, g.factor, g.entropy_factor);
  g.max = stats.max;
  // A gradient that is zero throughout is zero by selection, never by multiplying with what the
  // row's logits hold. NaN coefficients are not zero and stay.
  g.is_active = !(g.row.a == 0 && g.row.q == 0 && g.row.h == 0 && g.row.t == 0);
}

}  // namespace flce::cuda
