// SPDX-License-Identifier: Apache-2.0
// The yardstick of accuracy: what an unfused program of the same element type with f32 logits
// computes. Operands come rounded; products accumulate in f32, in blocks as a BLAS does; softmax in
// f32 with loss = lse - z_y; the logit gradient in the form p - 1, rounded to the operands' type;
// one rounding of each gradient at its end. Bias, smoothing, class and token weights, z-loss,
// scale, softcap and temperature are supported; the upstream is 1.
#pragma once

#include <vector>

#include "oracle/formats.hpp"
#include "oracle/oracle.hpp"

namespace oracle {

struct Unfused {
  std::vector<double> token_loss;  // before any reduction
  std::vector<double> loss;        // shaped as Result::loss
  std::vector<double> grad_hidden;
  std::vector<double> grad_weight;
  std::vector<double> grad_bias;
};

// `grad_weight_format`: the type of a grad_weight that is wider than the operands.
Unfused unfused(const Input& input, Format format, Format grad_weight_format);
inline Unfused unfused(const Input& input, Format format) { return unfused(input, format, format); }

}  // namespace oracle
