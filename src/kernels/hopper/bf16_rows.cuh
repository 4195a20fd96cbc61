// SPDX-License-Identifier: Apache-2.0
// Rows of bf16 matrices, read by the kernels that do something once a token.
#pragma once

#include <cuda_bf16.h>

#include "kernels/hopper/kernels.hpp"

namespace flce::cuda::hopper {

__device__ inline const __nv_bfloat16* row_of(const Rows& m, std::int64_t row) {
  return static_cast<const __nv_bfloat16*>(m.data) + row * m.row_stride;
}
__device__ inline const __nv_bfloat16* row_of(const Matrix& m, std::int64_t row) {
  return static_cast<const __nv_bfloat16*>(m.data) + row * m.row_stride;
}

// A row's elements come and go by 16 bytes: rows begin on them, H is a multiple of 8.
constexpr int kUnit = 8;

__device__ inline uint4 bits_of_unit(const __nv_bfloat16* from) {
  return *reinterpret_cast<const uint4*>(from);
}

__device__ inline void unpack_unit(const uint4& bits, float (&value)[kUnit]) {
  const unsigned pairs[] = {bits.x, bits.y, bits.z, bits.w};
  for (int i = 0; i < kUnit / 2; ++i) {
    value[2 * i] = __uint_as_float(pairs[i] << 16);
    value[2 * i + 1] = __uint_as_float(pairs[i] & 0xffff0000u);
  }
}

__device__ inline void load_unit(const __nv_bfloat16* from, float (&value)[kUnit]) {
  unpack_unit(bits_of_unit(from), value);
}

__device__ inline void store_unit(__nv_bfloat16* to, const float (&value)[kUnit]) {
  unsigned pairs[kUnit / 2];
  for (int i = 0; i < kUnit / 2; ++i) {
    const __nv_bfloat162 pair = __floats2bfloat162_rn(value[2 * i], value[2 * i + 1]);
    pairs[i] = *reinterpret_cast<const unsigned*>(&pair);
  }
  *reinterpret_cast<uint4*>(to) = make_uint4(pairs[0], pairs[1], pairs[2], pairs[3]);
}

}  // namespace flce::cuda::hopper
