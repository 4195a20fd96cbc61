// SPDX-License-Identifier: Apache-2.0
// What is asked: sizes, element types, options and wanted results, without a single pointer. A
// Problem is enough to plan; the memory comes later, in Inputs and Outputs (flce.hpp).
#pragma once

#include <cstdint>

#include "flce/types.hpp"

namespace flce {

// The loss of token i with target y (docs/math.md has the derivation and the sources):
//   z = scale * (hidden_i . weight) + bias
//   u = softcap * tanh(z / softcap) / temperature      (z / temperature without a softcap)
//   L = logsumexp(u)
//   loss_i = token_weight_i * [ (1 - eps) * w_y * (L - u_y) + (eps / V) * sum_j w_j * (L - u_j)
//                               + z_loss * L^2 ],      eps = label_smoothing, w = class weights
//
// z_loss, softcap, scale and temperature must be numbers of f32 (f64 of f64 hidden states).
struct Options {
  Reduction reduction = Reduction::kMean;  // kMean divides by the sum of w_y over valid tokens
  std::int64_t ignore_index = -100;        // may lie inside [0, V)
  double label_smoothing = 0.0;            // in [0, 1]
  double z_loss = 0.0;                     // lambda >= 0
  double softcap = 0.0;                    // 0: no cap
  double scale = 1.0;                      // multiplies the product, before bias and cap
  double temperature = 1.0;                // > 0; or one per token, see Inputs::temperature
  // With Reduction::kSum the sum is divided by this. 0 means "none given". A number that lives in
  // memory goes into Inputs::normalizer instead. `has_normalizer` admits an explicit 0 (a batch
  // without a valid token: loss and gradients are 0 then).
  double normalizer = 0.0;
  bool has_normalizer = false;
  // Token i is trained to predict target[i + shift]; the last `shift` tokens of each sequence have
  // no target and count as ignored. `sequence_length`, which goes with a shift, is the number of
  // tokens of one sequence (N must be a multiple of it); 0 means that all N tokens are one.
  std::int64_t shift = 0;
  std::int64_t sequence_length = 0;

  bool operator==(const Options&) const = default;
};

// Which results are wanted. A gradient that nobody asked for costs neither a product nor memory.
struct Wants {
  bool grad_hidden = true;
  bool grad_weight = true;
  bool grad_bias = false;
  bool lse = false;          // (N) log-sum-exp of u
  bool logprob = false;      // (N) u_y - L
  bool entropy = false;      // (N) entropy of softmax(u)
  bool z_loss = false;       // the z-loss part of the loss, reduced as the loss is
  bool argmax = false;       // (N) int64, the first index of the largest u
  bool num_correct = false;  // (1) int64, valid tokens whose argmax is the target
  bool num_valid = false;    // (1) int64, tokens that are not ignored
  std::int64_t topk = 0;     // k largest log-probabilities and their indices, (N, k)

  bool any_gradient() const noexcept { return grad_hidden || grad_weight || grad_bias; }
  bool operator==(const Wants&) const = default;
};

// The rows [begin, begin + Problem::vocab) of a head with `total` rows that is split over ranks.
// total == 0: the head is whole.
struct VocabShard {
  std::int64_t begin = 0;
  std::int64_t total = 0;
  bool operator==(const VocabShard&) const = default;
};

struct Problem {
  std::int64_t tokens = 0;  // N
  std::int64_t hidden = 0;  // H
  std::int64_t vocab = 0;   // V, or the local rows of a shard

  Dtype dtype = Dtype::kF32;         // of hidden, weight and grad_hidden
  Dtype target_dtype = Dtype::kI64;  // kI64 or kI32
  Dtype bias_dtype = Dtype::kNone;   // dtype or kF32; kNone: no bias. The same for the next four.
  Dtype class_weight_dtype = Dtype::kNone;
  Dtype token_weight_dtype = Dtype::kNone;
  Dtype temperature_dtype = Dtype::kNone;   // kNone: Options::temperature
  Dtype grad_entropy_dtype = Dtype::kNone;  // upstream of the entropy output, per token
  Dtype normalizer_dtype = Dtype::kNone;    // a number in memory: kF64, kF32, kI64 or kI32
  Dtype grad_output_dtype = Dtype::kNone;   // of a scalar or per-token upstream
  Upstream upstream = Upstream::kOne;
  Pass pass = Pass::kRun;

  Options options;
  Wants wants;
  Dtype grad_weight_dtype = Dtype::kNone;  // kNone: dtype; or kF32 (a "main_grad" buffer)
  Dtype grad_bias_dtype = Dtype::kNone;    // kNone: bias_dtype; or kF32
  bool accumulate_grad_weight = false;     // add to what the buffer holds instead of writing it
  bool accumulate_grad_bias = false;
  VocabShard shard;

  bool has_bias() const noexcept { return bias_dtype != Dtype::kNone; }
  bool has_class_weight() const noexcept { return class_weight_dtype != Dtype::kNone; }
  std::int64_t vocab_total() const noexcept { return shard.total > 0 ? shard.total : vocab; }
  bool operator==(const Problem&) const = default;
};

}  // namespace flce
