// SPDX-License-Identifier: Apache-2.0
// The types that a problem's other types follow from.
#pragma once

#include "flce/problem.hpp"

namespace flce {

// f64 for f64 problems, else f32: the type of per-token results and of all sums.
constexpr Dtype accumulation_dtype(Dtype dtype) {
  return dtype == Dtype::kF64 ? Dtype::kF64 : Dtype::kF32;
}
constexpr Dtype grad_weight_dtype_of(const Problem& p) {
  return p.grad_weight_dtype == Dtype::kNone ? p.dtype : p.grad_weight_dtype;
}

}  // namespace flce
