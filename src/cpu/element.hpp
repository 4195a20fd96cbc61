// SPDX-License-Identifier: Apache-2.0
// From a Dtype at run time to an element type at compile time, once a verb.
#pragma once

#include <utility>

#include "core/check.hpp"
#include "math/number.hpp"

namespace flce::cpu {

// Calls visit(Type<T>{}) with the element type of a real tensor.
template <typename Visit>
decltype(auto) visit_dtype(Dtype dtype, Visit&& visit) {
  const bool is_real = dtype >= Dtype::kF64 && dtype <= Dtype::kF16;
  if (!is_real) fail(ErrorCode::kInternal, "no arithmetic in dtype {}", name_of(dtype));
  return visit_real(dtype, std::forward<Visit>(visit));
}

// Calls visit(Type<Acc>{}) with the accumulation type.
template <typename Visit>
decltype(auto) visit_accumulation(Dtype dtype, Visit&& visit) {
  if (dtype == Dtype::kF64) return visit(Type<double>{});
  return visit(Type<float>{});
}

// Element i of a strided vector of real numbers or integers, as a double.
inline double load_real(const VectorView& view, std::int64_t i) {
  return load_number(view.data, view.dtype, i * view.stride);
}

inline void store_real(const VectorView& view, std::int64_t i, double value) {
  store_number(view.data, view.dtype, i * view.stride, value);
}

inline std::int64_t load_target(const VectorView& view, std::int64_t i) {
  return load_integer(view.data, view.dtype, i * view.stride);
}

}  // namespace flce::cpu
