// SPDX-License-Identifier: Apache-2.0
// An f32 sum as two 16-bit halves: the upper one lies in the caller's bf16 gradient until the sum
// is complete and rounded to it, the lower one in the workspace. So are sums of grad_weight over
// chunks, of grad_hidden over slabs, and the rows of grad_weight that wait for their targets'
// terms.
#pragma once

#include <cuda_runtime.h>

#include <cstdint>

#include "kernels/hopper/bf16_rows.cuh"

namespace flce::cuda::hopper {

__device__ inline float join(unsigned upper, unsigned lower) {
  return __uint_as_float(upper << 16 | lower);
}
__device__ inline std::uint16_t upper_half(float sum) {
  return static_cast<std::uint16_t>(__float_as_uint(sum) >> 16);
}
__device__ inline float without_lower_half(float sum) {
  return __uint_as_float(__float_as_uint(sum) & 0xffff0000u);  // a bf16
}
__device__ inline std::uint16_t lower_half(float sum) {
  return static_cast<std::uint16_t>(__float_as_uint(sum));
}

// The sums of kUnit elements of a row, read and written by 16 bytes.
class SumUnit {
 public:
  __device__ SumUnit(const Halves& sums, std::int64_t row, std::int64_t lower_row, int column)
      : upper_(static_cast<std::uint16_t*>(sums.upper) + row * sums.upper_row_stride + column),
        lower_(static_cast<std::uint16_t*>(sums.lower) + lower_row * sums.lower_row_stride +
               column) {
    const uint4 up = *reinterpret_cast<const uint4*>(upper_);
    const uint4 low = *reinterpret_cast<const uint4*>(lower_);
    const unsigned ups[] = {up.x, up.y, up.z, up.w};
    const unsigned lows[] = {low.x, low.y, low.z, low.w};
    for (int i = 0; i < kUnit / 2; ++i) {
      sum_[2 * i] = join(ups[i] & 0xffffu, lows[i] & 0xffffu);
      sum_[2 * i + 1] = join(ups[i] >> 16, lows[i] >> 16);
    }
  }
  __device__ float& operator[](int i) { return sum_[i]; }
  __device__ void store() const {
    unsigned ups[kUnit / 2];
    unsigned lows[kUnit / 2];
    for (int i = 0; i < kUnit / 2; ++i) {
      ups[i] = upper_half(sum_[2 * i]) | unsigned{upper_half(sum_[2 * i + 1])} << 16;
      lows[i] = lower_half(sum_[2 * i]) | unsigned{lower_half(sum_[2 * i + 1])} << 16;
    }
    *reinterpret_cast<uint4*>(upper_) = make_uint4(ups[0], ups[1], ups[2], ups[3]);
    *reinterpret_cast<uint4*>(lower_) = make_uint4(lows[0], lows[1], lows[2], lows[3]);
  }

 private:
  std::uint16_t* upper_;
  std::uint16_t* lower_;
  float sum_[kUnit];
};

}  // namespace flce::cuda::hopper
