// SPDX-License-Identifier: Apache-2.0
// What the targets add to grad_weight: for each of them the sum of t_i x_i over its tokens.
#include "kernels/hopper/bf16_rows.cuh"
#include "kernels/portable/row_math.cuh"

namespace flce::cuda::hopper {
namespace {

constexpr int kThreads = 128;

// A list of the tokens that have one target, in their order, added up when it is full or complete.
struct TargetSum {
  static constexpr int kThreads = 256;
  static constexpr int kRoom = 1024;

  const Chunk& chunk;
  const Rows& x;
  float* to;
  int* list;        // shared, kRoom
  int* num_before;  // shared, a count for each warp
  int count = 0;
  bool is_first = true;

  __device__ void add_list() {
    __syncthreads();
    for (int h = threadIdx.x; h < chunk.hidden; h += kThreads) {
      float sum = is_first ? 0.0f : to[h];
      for (int k = 0; k < count; ++k) {
        const float term = chunk.tokens.target_term[list[k]];
        // Zero by selection.
        if (term == 0.0f) continue;
        sum = fmaf(term, __bfloat162float(row_of(x, chunk.first + list[k])[h]), sum);
      }
      to[h] = sum;
    }
    __syncthreads();
    is_first = false;
    count = 0;
  }

  // Whether any thread's token has the target; if so they are appended.
  __device__ void append(int token, bool matches) {
    const unsigned votes = __ballot_sync(0xffffffffu, matches);
    const int lane = threadIdx.x % kWarp;
    const int warp = threadIdx.x / kWarp;
    if (lane == 0) num_before[warp] = __popc(votes);
    if (count + kThreads > kRoom) add_list();
    __syncthreads();
    int at = count;
    for (int w = 0; w < warp; ++w) at += num_before[w];
    if (matches) list[at + __popc(votes & ((1u << lane) - 1u))] = token;
    for (int w = 0; w < kThreads / kWarp; ++w) count += num_before[w];
    __syncthreads();
  }
};

__global__ void __launch_bounds__(TargetSum::kThreads)
    target_sums(const __grid_constant__ Chunk chunk, const Rows x, int first_col, int cols,
                int* sum_of, float* table) {
  __shared__ int list[TargetSum::kRoom];
  __shared__ int num_before[TargetSum::kThreads / kWarp];
  const int row = blockIdx.x;
  const int* const targets = chunk.tokens.target;
  const int target = targets[row];
  if (target < first_col || target >= first_col + cols) return;
  // The first token of a target works for all of them.
  for (int base = 0; base < row; base += TargetSum::kThreads) {
    const int other = base + threadIdx.x;
    if (__syncthreads_or(other < row && targets[other] == target)) return;
  }
  const int col = target - first_col;
  const int at = cols < chunk.rows ? col : row;
  if (threadIdx.x == 0) sum_of[col] = at;
  TargetSum sum{chunk, x, table + std::int64_t{at} * chunk.hidden, list, num_before};
  for (int base = row; base < chunk.rows; base += TargetSum::kThreads) {
    const int token = base + threadIdx.x;
    const bool matches = token < chunk.rows && targets[token] == target;
    if (__syncthreads_or(matches)) sum.append(token, matches);
  }
  sum.add_list();
}

__global__ void add_target_sums(const int* sum_of, const float* table, const float* alpha, int cols,
                                int hidden, float* to, std::int64_t row_stride) {
  for (int col = blockIdx.x; col < cols; col += gridDim.x) {
    const int at = sum_of[col];
    if (at < 0) continue;
    for (int h = threadIdx.x; h < hidden; h += blockDim.x) {
      to[col * row_stride + h] += *alpha * table[std::int64_t{at} * hidden + h];
    }
  }
}

}  // namespace

void launch_target_sums(const Chunk& chunk, const Rows& x, int first_col, int cols, int* sum_of,
                        float* table, cudaStream_t stream) {
  cudaMemsetAsync(sum_of, 0xff, static_cast<std::size_t>(cols) * sizeof(int), stream);
  target_sums<<<chunk.rows, TargetSum::kThreads, 0, stream>>>(chunk, x, first_col, cols, sum_of,
                                                              table);
}

void launch_add_target_sums(const int* sum_of, const float* table, const float* alpha, int cols,
                            int hidden, const RowsOut& to, cudaStream_t stream) {
  constexpr int kMostBlocks = 2048;
  const int blocks = cols < kMostBlocks ? cols : kMostBlocks;
  add_target_sums<<<blocks, kThreads, 0, stream>>>(sum_of, table, alpha, cols, hidden,
                                                   static_cast<float*>(to.data), to.row_stride);
}

}  // namespace flce::cuda::hopper
