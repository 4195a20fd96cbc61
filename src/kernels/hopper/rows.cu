// SPDX-License-Identifier: Apache-2.0
// What is done once a token around the gradients' products. None of it touches the C*V
// exponentials, but for rows that must be cleared.
#include "kernels/hopper/bf16_rows.cuh"
#include "kernels/hopper/halves.cuh"
#include "kernels/hopper/hidden_gradient.cuh"
#include "kernels/portable/row_math.cuh"
#include "kernels/portable/token_math.cuh"

namespace flce::cuda::hopper {
namespace {

constexpr int kThreads = 128;

// A token whose target's term is zero is none of the target's tokens.
__device__ inline void enlist(const TargetLists& lists, const TokenRows& tokens, int row) {
  if (tokens.target_term[row] == 0.0f) return;
  const int target = tokens.target[row];
  atomicMin(reinterpret_cast<unsigned*>(lists.first) + target, static_cast<unsigned>(row));
  atomicAdd(lists.before_last + target, 1);
}

__global__ void __launch_bounds__(kThreads)
    scaled_rows(const __grid_constant__ Call call, const __grid_constant__ Chunk chunk,
                const Rows x, __nv_bfloat16* xs, std::int64_t xs_stride, const TargetLists lists,
                bool is_unit) {
  const int row = blockIdx.x;
  const std::int64_t token = chunk.first + row;
  const TokenGradient& gradient = call.gradients[token];
  const bool is_active = gradient.is_active != 0;
  double of_row = gradient.row.a;
  if (is_unit && of_row != 0.0 && isfinite(of_row)) of_row = of_row > 0.0 ? 1.0 : -1.0;
  if (is_unit && call.grad_entropy.dtype != Dtype::kNone) of_row = 1.0;  // E has the sign
  const float scale = is_active ? static_cast<float>(of_row) : 0.0f;
  if (threadIdx.x == 0) {
    chunk.tokens.row_scale[row] = scale;
    double term = gradient.row.t;
    if (chunk.smoothing.token_term != nullptr) {
      // The outer product has the target's column too.
      term += gradient.row.q * gradient.class_weight;
      chunk.smoothing.token_term[row] = is_active ? static_cast<float>(gradient.row.q) : 0.0f;
    }
    chunk.tokens.target_term[row] = is_active ? static_cast<float>(term) : 0.0f;
    if (lists.first != nullptr) enlist(lists, chunk.tokens, row);
  }
  if (xs == nullptr) return;
  __nv_bfloat16* const to = xs + row * xs_stride;
  const __nv_bfloat16* const from = row_of(x, token);
  for (int h = threadIdx.x * kUnit; h < chunk.hidden; h += kThreads * kUnit) {
    float value[kUnit] = {};
    if (is_active) load_unit(from + h, value);
    for (float& v : value) v *= scale;
    store_unit(to + h, value);
  }
}

__global__ void __launch_bounds__(kThreads)
    clear_rows(const __grid_constant__ Call call, const __grid_constant__ Chunk chunk,
               __nv_bfloat16* e, std::int64_t e_row_stride, int cols) {
  // A token for each thread to look at, and a row for each warp to clear: few need it.
  const int row = blockIdx.x * kThreads + threadIdx.x;
  const std::int64_t token = chunk.first + row;
  const bool is_stale = row < chunk.rows && call.gradients[token].is_active == 0 &&
                        !isfinite(call.states[token].stats.others);
  const int lane = threadIdx.x % kWarp;
  unsigned left = __ballot_sync(0xffffffffu, is_stale);
  for (; left != 0; left &= left - 1) {
    __nv_bfloat16* const to = e + (row - lane + __ffs(static_cast<int>(left)) - 1) * e_row_stride;
    for (int j = lane * kUnit; j < cols; j += kWarp * kUnit) {
      *reinterpret_cast<uint4*>(to + j) = uint4{};  // rows are padded to more than a unit
    }
  }
}

__global__ void __launch_bounds__(kThreads)
    gather_targets(const __grid_constant__ Chunk chunk, const Matrix w, __nv_bfloat16* to,
                   std::int64_t to_stride) {
  const int row = blockIdx.x;
  if (chunk.tokens.target_term[row] == 0.0f) return;
  const __nv_bfloat16* const from = row_of(w, chunk.tokens.target[row]);
  for (int h = threadIdx.x * kUnit; h < chunk.hidden; h += kThreads * kUnit) {
    *reinterpret_cast<uint4*>(to + row * to_stride + h) = *reinterpret_cast<const uint4*>(from + h);
  }
}

__global__ void __launch_bounds__(kThreads)
    store_grad_hidden(const __grid_constant__ Chunk chunk, const Halves sums, const Matrix w,
                      const float* alpha) {
  const int row = blockIdx.x;
  const float scale = *alpha * chunk.tokens.row_scale[row];
  const float term = *alpha * chunk.tokens.target_term[row];
  const Smoothing& smoothing = chunk.smoothing;
  const float smooth = smoothing.token_term != nullptr ? *alpha * smoothing.token_term[row] : 0.0f;
  const __nv_bfloat16* const of_target =
      term != 0.0f ? row_of(w, chunk.tokens.target[row]) : nullptr;
  for (int h = threadIdx.x * kUnit; h < chunk.hidden; h += kThreads * kUnit) {
    SumUnit unit(sums, row, row, h);
    float grad[kUnit];
    float of_weight[kUnit] = {};
    if (of_target != nullptr) load_unit(of_target + h, of_weight);
    for (int i = 0; i < kUnit; ++i) {
      grad[i] = hidden_gradient(scale, unit[i], term, of_weight[i]);
      if (smooth != 0.0f) grad[i] = less_smoothing(grad[i], smooth, smoothing.class_sum[h + i]);
    }
    store_unit(static_cast<__nv_bfloat16*>(sums.upper) + row * sums.upper_row_stride + h, grad);
  }
}

}  // namespace

void launch_scaled_rows(const Call& call, const Chunk& chunk, const Rows& x, void* xs,
                        std::int64_t xs_stride, const TargetLists& lists, bool is_unit,
                        cudaStream_t stream) {
  scaled_rows<<<chunk.rows, kThreads, 0, stream>>>(call, chunk, x, static_cast<__nv_bfloat16*>(xs),
                                                   xs_stride, lists, is_unit);
}

void launch_clear_rows(const Call& call, const Chunk& chunk, void* e, std::int64_t e_row_stride,
                       int cols, cudaStream_t stream) {
  clear_rows<<<(chunk.rows + kThreads - 1) / kThreads, kThreads, 0, stream>>>(
      call, chunk, static_cast<__nv_bfloat16*>(e), e_row_stride, cols);
}

void launch_gather_targets(const Chunk& chunk, const Matrix& w, void* to, std::int64_t to_stride,
                           cudaStream_t stream) {
  gather_targets<<<chunk.rows, kThreads, 0, stream>>>(chunk, w, static_cast<__nv_bfloat16*>(to),
                                                      to_stride);
}

void launch_store_grad_hidden(const Chunk& chunk, const Halves& sums, const Matrix& w,
                              const float* alpha, cudaStream_t stream) {
  store_grad_hidden<<<chunk.rows, kThreads, 0, stream>>>(chunk, sums, w, alpha);
}

}  // namespace flce::cuda::hopper
