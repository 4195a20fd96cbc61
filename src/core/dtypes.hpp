// SPDX-License-Identifier: Apache-2.0
// The types that a problem's other types follow from.
#pragma once

#include <limits>

#include "flce/problem.hpp"

namespace flce {

// f64 for f64 problems, else f32: the type of per-token results and of all sums.
constexpr Dtype accumulation_dtype(Dtype dtype) {
  return dtype == Dtype::kF64 ? Dtype::kF64 : Dtype::kF32;
}
// The sizes of that type's numbers, but for 0 and denormal ones.
struct RealRange {
  double least = std::numeric_limits<float>::min();
  double largest = std::numeric_limits<float>::max();
  constexpr bool holds(double value) const {
    const double size = value < 0.0 ? -value : value;
    return size >= least && size <= largest;
  }
};
constexpr RealRange accumulation_range(Dtype dtype) {
  if (accumulation_dtype(dtype) != Dtype::kF64) return {};
  return {std::numeric_limits<double>::min(), std::numeric_limits<double>::max()};
}
constexpr Dtype grad_weight_dtype_of(const Problem& p) {
  return p.grad_weight_dtype == Dtype::kNone ? p.dtype : p.grad_weight_dtype;
}

}  // namespace flce
