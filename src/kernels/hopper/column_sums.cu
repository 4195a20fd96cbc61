// SPDX-License-Identifier: Apache-2.0
// grad_bias: sums of the gradient over a chunk's tokens.
#include "kernels/hopper/bf16_rows.cuh"
#include "kernels/portable/row_math.cuh"

namespace flce::cuda::hopper {
namespace {

// A warp takes 256 columns of a row, 16 bytes a lane; each column is summed by eight warps, then in
// one order.
constexpr int kSlices = 8;
constexpr int kCols = kWarp * kUnit;

__global__ void __launch_bounds__(kWarp* kSlices)
    column_sums(const __grid_constant__ Call call, const __grid_constant__ Chunk chunk,
                const Matrix e, int first_col, int cols, bool is_first, double* acc) {
  __shared__ float parts[kSlices][kCols];
  const int lane = threadIdx.x % kWarp;
  const int slice = threadIdx.x / kWarp;
  const int col = blockIdx.x * kCols + lane * kUnit;
  float sum[kUnit] = {};
  if (col < cols) {  // rows are whole lines
#pragma unroll 4
    for (int row = slice; row < chunk.rows; row += kSlices) {
      float value[kUnit];
      load_unit(row_of(e, row) + col, value);
      const float scale = chunk.tokens.row_scale[row];
      const unsigned at = static_cast<unsigned>(chunk.tokens.target[row] - first_col - col);
      const float term = at < kUnit ? chunk.tokens.target_term[row] : 0.0f;
#pragma unroll
      for (int i = 0; i < kUnit; ++i) {
        if (scale != 0.0f) sum[i] = fmaf(scale, value[i], sum[i]);
        if (at == static_cast<unsigned>(i)) sum[i] += term;
      }
    }
  }
#pragma unroll
  for (int i = 0; i < kUnit; ++i) parts[slice][lane * kUnit + i] = sum[i];
  __syncthreads();
  const int j = blockIdx.x * kCols + threadIdx.x;
  if (j >= cols) return;
  double total = 0.0;
  for (int s = 0; s < kSlices; ++s) total += parts[s][threadIdx.x];
  if (chunk.smoothing.token_sum != nullptr) {
    const auto* const weights = static_cast<const float*>(call.class_weight);
    total -= *chunk.smoothing.token_sum * (weights != nullptr ? weights[first_col + j] : 1.0);
  }
  total /= call.gradient_scale->power;
  acc[j] = is_first ? total : acc[j] + total;
}

}  // namespace

void launch_column_sums(const Call& call, const Chunk& chunk, const Matrix& e, int first_col,
                        int cols, bool is_first, double* acc, cudaStream_t stream) {
  static_assert(kCols == kWarp * kSlices, "a thread for each column of the block");
  column_sums<<<(cols + kCols - 1) / kCols, kWarp * kSlices, 0, stream>>>(call, chunk, e, first_col,
                                                                          cols, is_first, acc);
}

}  // namespace flce::cuda::hopper
