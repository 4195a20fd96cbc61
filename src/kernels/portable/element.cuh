// SPDX-License-Identifier: Apache-2.0
// Strided numbers of any type, and 16-byte pieces of rows.
#pragma once

#include <cstdint>

#include "kernels/portable/kernels.hpp"
#include "math/number.hpp"

namespace flce::cuda {

__device__ inline double load_real(const Reals& view, std::int64_t i) {
  return load_number(view.data, view.dtype, i * view.stride);
}

__device__ inline std::int64_t load_integer(const Reals& view, std::int64_t i) {
  return flce::load_integer(view.data, view.dtype, i * view.stride);
}

// Nothing where the output is absent.
__device__ inline void store_real(const RealsOut& view, std::int64_t i, double value) {
  store_number(view.data, view.dtype, i * view.stride, value);
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
