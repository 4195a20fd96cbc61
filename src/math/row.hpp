// SPDX-License-Identifier: Apache-2.0
// The formulas of the loss of one token and of its gradient, once (docs/math.md derives them).
//
//   e_j = exp(u_j - max),  others = sum_{j != y} e_j,  S = others + e_y,  L = max + log S
//
// The target is kept apart from the others throughout: the loss is log1p(others / e_y) and the
// target's gradient -others / S, which keep their digits when p_y is close to 1, where L - u_y and
// p_y - 1 have none left.
#pragma once

#include <cmath>
#include <cstdint>
#include <limits>

#include "math/macros.hpp"

namespace flce {

// What is known of a row after looking at some of its columns. The target's logit is known to the
// shard that owns it, the others add nothing (0).
struct RowStats {
  double max = std::numeric_limits<double>::lowest();
  double others = 0.0;        // sum over j != y of e_j
  double entropy = 0.0;       // sum over j != y of e_j * (u_j - max)
  double weighted = 0.0;      // sum over j of w_j * u_j, w = class weights or 1
  double target = 0.0;        // u_y
  double target_slope = 0.0;  // 1 - tanh^2 of the softcap at y, 1 without one
  double best = -std::numeric_limits<double>::infinity();  // largest u, for the argmax
  std::int64_t best_index = -1;                            // its first index, -1: none seen
};

// a * exp(distance), without 0 * NaN or 0 * inf where a is 0.
FLCE_HD inline double rescale(double a, double distance) {
  return a == 0.0 ? 0.0 : a * std::exp(distance);
}

// Adds the columns behind `from` to those behind `to`. The columns of `to` come first: on a tie the
// argmax stays there.
FLCE_HD inline void merge(RowStats& to, const RowStats& from) {
  const double max = to.max >= from.max ? to.max : from.max;
  const double d_to = to.max - max;
  const double d_from = from.max - max;
  const double moved_to = to.others == 0.0 ? to.entropy : to.entropy + to.others * d_to;
  const double moved_from = from.others == 0.0 ? from.entropy : from.entropy + from.others * d_from;
  to.entropy = rescale(moved_to, d_to) + rescale(moved_from, d_from);
  to.others = rescale(to.others, d_to) + rescale(from.others, d_from);
  to.weighted += from.weighted;
  to.target += from.target;
  to.target_slope += from.target_slope;
  to.max = max;
  if (from.best_index >= 0 && (to.best_index < 0 || from.best > to.best)) {
    to.best = from.best;
    to.best_index = from.best_index;
  }
}

// What the loss is made of, the same for all rows.
struct LossParams {
  double label_smoothing = 0.0;   // eps
  double z_loss = 0.0;            // lambda
  double vocab = 1.0;             // V, of the whole head
  double class_weight_sum = 1.0;  // sum_j w_j, V without class weights
};

// What a mean is divided by: the sum of w_y over its tokens with a target. Where that is 0 the loss
// is NaN in all its parts, and so are the gradients of those tokens, as in PyTorch.
FLCE_HD inline double mean_divisor(double target_weight_sum) {
  return target_weight_sum == 0.0 ? double{NAN} : target_weight_sum;
}

struct RowLoss {
  double loss = 0.0;     // without the token weight
  double z_part = 0.0;   // lambda * L^2, a part of `loss`
  double lse = 0.0;      // L
  double logprob = 0.0;  // u_y - L
  double entropy = 0.0;
};

FLCE_HD inline double sum_of_row(const RowStats& s) {
  return s.others + std::exp(s.target - s.max);
}

FLCE_HD inline double entropy_of_row(const RowStats& s) {
  const double distance = s.target - s.max;
  const double e_y = std::exp(distance);
  const double sum = s.others + e_y;
  const double target_term = e_y == 0.0 ? 0.0 : e_y * distance;
  return std::log(sum) - (s.entropy + target_term) / sum;
}

// `class_weight` is w_y.
FLCE_HD inline RowLoss loss_of_row(const RowStats& s, const LossParams& p, double class_weight) {
  const double e_y = std::exp(s.target - s.max);
  const double log_sum = std::log(s.others + e_y);
  // Left: the target is small beside the others; right: it dominates (NaN goes right and stays).
  const double nll = s.others > e_y ? log_sum + (s.max - s.target) : std::log1p(s.others / e_y);
  RowLoss row;
  row.lse = s.max + log_sum;
  row.logprob = -nll;
  row.loss = (1.0 - p.label_smoothing) * class_weight * nll;
  if (p.label_smoothing != 0.0) {
    row.loss += p.label_smoothing / p.vocab * (p.class_weight_sum * row.lse - s.weighted);
  }
  if (p.z_loss != 0.0) {
    row.z_part = p.z_loss * row.lse * row.lse;
    row.loss += row.z_part;
  }
  return row;
}

// The gradient of a row's logits. For the columns j != y
//   d/du_j = a * e_j - q * w_j - h * e_j * ((u_j - max) + k),     d/dz_j = d/du_j * slope_j / T
// and t at the target (d/dz, slope and temperature included). 1/T is in a, q and h already.
struct RowGradient {
  double a = 0.0;
  double q = 0.0;
  double h = 0.0;
  double k = 0.0;
  double t = 0.0;
};

// `factor` is the gradient that arrives at the row's loss (the caller's, times token weight, over
// the divisor) over the temperature, `entropy_factor` that of its entropy over the temperature.
FLCE_HD inline RowGradient gradient_of_row(const RowStats& s, const LossParams& p,
                                           double class_weight, double factor,
                                           double entropy_factor) {
  const double e_y = std::exp(s.target - s.max);
  const double sum = s.others + e_y;
  const double inverse = 1.0 / sum;
  const double log_sum = p.z_loss != 0.0 || entropy_factor != 0.0 ? std::log(sum) : 0.0;
  const double smooth = p.label_smoothing != 0.0 ? p.label_smoothing / p.vocab : 0.0;
  const double nll_part = (1.0 - p.label_smoothing) * class_weight;  // B
  double rest = smooth * p.class_weight_sum;                         // A - B
  if (p.z_loss != 0.0) rest += 2.0 * p.z_loss * (s.max + log_sum);
  RowGradient g;
  g.a = factor * (nll_part + rest) * inverse;
  g.q = factor * smooth;
  double at_target = factor * (rest * e_y - nll_part * s.others) * inverse;
  if (smooth != 0.0) at_target -= factor * smooth * class_weight;
  if (entropy_factor != 0.0) {
    g.h = entropy_factor * inverse;
    g.k = entropy_of_row(s) - log_sum;
    if (e_y != 0.0) at_target -= g.h * e_y * ((s.target - s.max) + g.k);
  }
  g.t = at_target * s.target_slope;
  return g;
}

}  // namespace flce
