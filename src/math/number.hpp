// SPDX-License-Identifier: Apache-2.0
// From a Dtype at run time to an element type at compile time, and numbers of any dtype one by one,
// on host and device.
#pragma once

#include <cstdint>

#include "flce/types.hpp"
#include "math/element.hpp"
#include "math/round.hpp"

namespace flce {

// Calls visit(Type<T>{}) with the element type of a real tensor; f32 for what is none.
template <typename Visit>
decltype(auto) visit_real(Dtype dtype, Visit&& visit) {
  switch (dtype) {
    case Dtype::kF64:
      return visit(Type<double>{});
    case Dtype::kBF16:
      return visit(Type<BF16>{});
    case Dtype::kF16:
      return visit(Type<F16>{});
    default:
      return visit(Type<float>{});
  }
}

// Element `at` of numbers or integers; 0 where there are none.
FLCE_HD inline double load_number(const void* data, Dtype dtype, std::int64_t at) {
  switch (dtype) {
    case Dtype::kF64:
      return static_cast<const double*>(data)[at];
    case Dtype::kF32:
      return static_cast<const float*>(data)[at];
    case Dtype::kBF16:
      return widen(static_cast<const BF16*>(data)[at]);
    case Dtype::kF16:
      return widen(static_cast<const F16*>(data)[at]);
    case Dtype::kI64:
      return static_cast<double>(static_cast<const std::int64_t*>(data)[at]);
    case Dtype::kI32:
      return static_cast<const std::int32_t*>(data)[at];
    default:
      return 0.0;
  }
}

// Rounded once; nothing where there is no tensor.
FLCE_HD inline void store_number(void* data, Dtype dtype, std::int64_t at, double value) {
  switch (dtype) {
    case Dtype::kF64:
      static_cast<double*>(data)[at] = value;
      break;
    case Dtype::kF32:
      static_cast<float*>(data)[at] = static_cast<float>(value);
      break;
    case Dtype::kBF16:
      static_cast<BF16*>(data)[at] = round_to<BF16>(value);
      break;
    case Dtype::kF16:
      static_cast<F16*>(data)[at] = round_to<F16>(value);
      break;
    default:
      break;
  }
}

// Of i64 or i32.
FLCE_HD inline std::int64_t load_integer(const void* data, Dtype dtype, std::int64_t at) {
  return dtype == Dtype::kI64 ? static_cast<const std::int64_t*>(data)[at]
                              : static_cast<const std::int32_t*>(data)[at];
}

}  // namespace flce
