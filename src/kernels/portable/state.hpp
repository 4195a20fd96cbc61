// SPDX-License-Identifier: Apache-2.0
// What the kernels keep in the workspace: per token, and for the whole call. Plain data, alike on
// host and device; the booking takes its size from here.
#pragma once

#include <cstdint>

#include "math/row.hpp"

namespace flce::cuda {

// In place of a target: the token has none, or one outside the vocabulary.
inline constexpr std::int64_t kIgnored = -1;
inline constexpr std::int64_t kOutOfRange = -2;

struct TokenState {
  RowStats stats;
  double loss = 0.0;               // token weight included
  double z_part = 0.0;             // likewise
  std::int64_t target = kIgnored;  // a row of the whole head
};

// RowGradient in the form that the passes over logits read: one for each token.
struct TokenGradient {
  RowGradient row;
  double max = 0.0;
  // What gradient_of_row is given, known before the statistics are.
  double factor = 0.0;
  double entropy_factor = 0.0;
  double class_weight = 1.0;
  std::int64_t target = -1;    // a row of the local head, -1: another shard's
  std::int64_t is_active = 0;  // 0: the gradient is zero, whatever the logits are
};

// Sums over the tokens, of which the reduced loss and the divisor are made.
struct Totals {
  double class_weight_sum = 0.0;   // sum_j w_j over the whole vocabulary
  double target_weight_sum = 0.0;  // sum of w_y over valid tokens
  double loss_sum = 0.0;
  double z_sum = 0.0;
  std::int64_t num_valid = 0;
  std::int64_t num_correct = 0;
  // The first target out of range, for the error's text.
  std::int64_t num_out_of_range = 0;
  std::int64_t bad_token = -1;
  std::int64_t bad_target = 0;
};

inline constexpr int kTotalsBytes = 256;
static_assert(sizeof(Totals) <= kTotalsBytes);

// f16: gradients are stored times a power of two, so that small ones do not vanish; the products'
// factor takes it back.
struct GradientScale {
  double power = 1.0;
  float alpha = 1.0f;            // Options::scale over the power
  float beta[2] = {0.0f, 1.0f};  // written, or added to
};
inline constexpr int kGradientScaleBytes = 64;
static_assert(sizeof(GradientScale) <= kGradientScaleBytes);

struct TopkCandidate {
  double value = 0.0;
  std::int64_t index = -1;
};

}  // namespace flce::cuda
