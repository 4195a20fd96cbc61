// SPDX-License-Identifier: Apache-2.0
// From a Dtype at run time to an element type at compile time, numbers of any type one by one, and
// 16-byte pieces of rows.
#pragma once

#include <cstdint>

#include "kernels/portable/kernels.hpp"
#include "math/element.hpp"
#include "math/round.hpp"

namespace flce::cuda {

// Calls visit(Type<T>{}) with the element type of a real tensor.
template <typename Visit>
void visit_dtype(Dtype dtype, Visit&& visit) {
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

__device__ inline double load_real(const Reals& view, std::int64_t i) {
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

__device__ inline std::int64_t load_integer(const Reals& view, std::int64_t i) {
  const std::int64_t at = i * view.stride;
  return view.dtype == Dtype::kI64 ? static_cast<const std::int64_t*>(view.data)[at]
                                   : static_cast<const std::int32_t*>(view.data)[at];
}

// Nothing where the output is absent.
__device__ inline void store_real(const RealsOut& view, std::int64_t i, double value) {
  const std::int64_t at = i * view.stride;
  switch (view.dtype) {
    case Dtype::kF64:
      static_cast<double*>(view.data)[at] = value;
      break;
    case Dtype::kF32:
      static_cast<float*>(view.data)[at] = static_cast<float>(value);
      break;
    case Dtype::kBF16:
      static_cast<BF16*>(view.data)[at] = round_to<BF16>(value);
      break;
    case Dtype::kF16:
      static_cast<F16*>(view.data)[at] = round_to<F16>(value);
      break;
    default:
      break;
  }
}

__device__ inline void store_integer(const IntegersOut& view, std::int64_t i, std::int64_t value) {
  if (view.data != nullptr) view.data[i * view.stride] = value;
}

// 16 bytes of a row, moved at once.
template <typename T>
struct alignas(16) Piece {
  static constexpr int kCount = 16 / sizeof(T);
  T value[kCount];
};

// The next power-of-two lane of a warp, all lanes taking part.
template <typename T>
__device__ inline T from_lane_xor(T value, int mask) {
  return __shfl_xor_sync(0xffffffffu, value, mask);
}

inline unsigned blocks_for(std::int64_t items, std::int64_t per_block,
                           std::int64_t most = 0x7fffffff) {
  const std::int64_t blocks = (items + per_block - 1) / per_block;
  return static_cast<unsigned>(blocks < 1 ? 1 : (blocks > most ? most : blocks));
}

}  // namespace flce::cuda
