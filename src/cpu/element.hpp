// SPDX-License-Identifier: Apache-2.0
// From a Dtype at run time to an element type at compile time, once a verb.
#pragma once

#include "core/check.hpp"
#include "flce/types.hpp"
#include "math/element.hpp"
#include "math/round.hpp"

namespace flce::cpu {

// Calls visit(Type<T>{}) with the element type of a real tensor.
template <typename Visit>
decltype(auto) visit_dtype(Dtype dtype, Visit&& visit) {
  switch (dtype) {
    case Dtype::kF64:
      return visit(Type<double>{});
    case Dtype::kF32:
      return visit(Type<float>{});
    case Dtype::kBF16:
      return visit(Type<BF16>{});
    case Dtype::kF16:
      return visit(Type<F16>{});
    default:
      fail(ErrorCode::kInternal, "no arithmetic in dtype {}", name_of(dtype));
  }
}

// Calls visit(Type<Acc>{}) with the accumulation type.
template <typename Visit>
decltype(auto) visit_accumulation(Dtype dtype, Visit&& visit) {
  if (dtype == Dtype::kF64) return visit(Type<double>{});
  return visit(Type<float>{});
}

// Element i of a strided vector of real numbers or integers, as a double.
inline double load_real(const VectorView& view, std::int64_t i) {
  const std::int64_t at = i * view.stride;
  switch (view.dtype) {
    case Dtype::kF64:
      return static_cast<const double*>(view.data)[at];
    case Dtype::kF32:
      return static_cast<const float*>(view.data)[at];
    case Dtype::kBF16:
      return widen(static_cast<const BF16*>(view.data)[at]);
    case Dtype::kF16:
      return widen(static_cast<const F16*>(view.data)[at]);
    case Dtype::kI64:
      return static_cast<double>(static_cast<const std::int64_t*>(view.data)[at]);
    case Dtype::kI32:
      return static_cast<const std::int32_t*>(view.data)[at];
    default:
      return 0.0;
  }
}

inline void store_real(const VectorView& view, std::int64_t i, double value) {
  const std::int64_t at = i * view.stride;
  visit_dtype(view.dtype,
              [&]<typename T>(Type<T>) { static_cast<T*>(view.data)[at] = round_to<T>(value); });
}

inline std::int64_t load_target(const VectorView& view, std::int64_t i) {
  const std::int64_t at = i * view.stride;
  return view.dtype == Dtype::kI64 ? static_cast<const std::int64_t*>(view.data)[at]
                                   : static_cast<const std::int32_t*>(view.data)[at];
}

}  // namespace flce::cpu
