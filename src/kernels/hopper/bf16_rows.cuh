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

}  // namespace flce::cuda::hopper
