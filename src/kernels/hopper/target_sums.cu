// SPDX-License-Identifier: Apache-2.0
// What the targets add to grad_weight: for each of them the sum of t_i x_i over its tokens, in
// their order. The first token of a target works for all of them.
#include "kernels/hopper/bf16_rows.cuh"
#include "kernels/hopper/halves.cuh"
#include "kernels/portable/row_math.cuh"

namespace flce::cuda::hopper {
namespace {

constexpr int kThreads = 128;
constexpr int kWarps = kThreads / kWarp;
// Of a block: few are anyone's first in a slab, and most have one token.
constexpr int kTokens = 8;

// Of the tokens from `base` on, one a thread, those that have the target and a term, as a list.
__device__ int list_tokens(const Chunk& chunk, int target, int base, int* list, int* votes_of) {
  const int token = base + static_cast<int>(threadIdx.x);
  const bool matches = token < chunk.rows && chunk.tokens.target[token] == target &&
                       chunk.tokens.target_term[token] != 0.0f;
  const unsigned votes = __ballot_sync(0xffffffffu, matches);
  const int lane = threadIdx.x % kWarp;
  const int warp = threadIdx.x / kWarp;
  __syncthreads();  // the list before this one has been used
  if (lane == 0) votes_of[warp] = __popc(votes);
  __syncthreads();
  int count = 0;
  int at = 0;
  for (int w = 0; w < kWarps; ++w) {
    if (w == warp) at = count;
    count += votes_of[w];
  }
  if (matches) list[at + __popc(votes & ((1u << lane) - 1u))] = token;
  __syncthreads();
  return count;
}

// One target's sum of kUnit columns of the hidden states, for each thread of the block.
__device__ void sum_target(const Chunk& chunk, const Rows& x, int target, int first, int count,
                           int column, float (&sum)[kUnit]) {
  __shared__ int list[kThreads];
  __shared__ int votes_of[kWarps];
  const auto add = [&](int token) {
    if (column >= chunk.hidden) return;
    const float term = chunk.tokens.target_term[token];
    float value[kUnit];
    load_unit(row_of(x, chunk.first + token) + column, value);
    for (int i = 0; i < kUnit; ++i) sum[i] = fmaf(term, value[i], sum[i]);
  };
  if (count == 1) {
    add(first);
    return;
  }
  for (int base = first; count > 0 && base < chunk.rows; base += kThreads) {
    const int found = list_tokens(chunk, target, base, list, votes_of);
    for (int k = 0; k < found; ++k) add(list[k]);
    count -= found;
  }
}

// Store(col, row, column, sum) takes kUnit columns of a target's sum.
template <typename Store>
__global__ void __launch_bounds__(kThreads)
    target_sums(const __grid_constant__ Chunk chunk, const Rows x, const TargetLists lists,
                int first_col, int cols, const Store store) {
  const int column = (blockIdx.y * kThreads + threadIdx.x) * kUnit;
  // A lane of each warp looks at a token: most blocks of a slab have nothing to do.
  const int lane = threadIdx.x % kWarp;
  const int first_row = blockIdx.x * kTokens;
  int own_target = 0;
  int own_count = 0;
  if (lane < kTokens && first_row + lane < chunk.rows) {
    own_target = chunk.tokens.target[first_row + lane];
    const bool is_here = own_target >= first_col && own_target < first_col + cols;
    if (is_here && lists.first[own_target] == first_row + lane) {
      own_count = lists.before_last[own_target] + 1;
    }
  }
  unsigned left = __ballot_sync(0xffffffffu, own_count > 0);
  for (; left != 0; left &= left - 1) {
    const int from = __ffs(static_cast<int>(left)) - 1;
    const int row = first_row + from;
    const int target = __shfl_sync(0xffffffffu, own_target, from);
    const int count = __shfl_sync(0xffffffffu, own_count, from);
    float sum[kUnit] = {};
    sum_target(chunk, x, target, row, count, column, sum);
    if (column < chunk.hidden) store(target - first_col, row, column, sum);
  }
}

struct ToFloats {
  float* sums;
  std::int64_t row_stride;
  const float* alpha;

  __device__ void operator()(int col, int, int column, const float (&sum)[kUnit]) const {
    float* const to = sums + col * row_stride + column;
    for (int i = 0; i < kUnit; ++i) to[i] = fmaf(*alpha, sum[i], to[i]);
  }
};

struct ToHalves {
  Halves sums;
  const float* alpha;

  __device__ void operator()(int col, int, int column, const float (&sum)[kUnit]) const {
    SumUnit to(sums, col, col, column);
    for (int i = 0; i < kUnit; ++i) to[i] = fmaf(*alpha, sum[i], to[i]);
    to.store();
  }
};

// The sum's end: rounded to bf16.
struct ToBf16 {
  Halves sums;
  const float* alpha;
  bool is_by_col;

  __device__ void operator()(int col, int row, int column, const float (&sum)[kUnit]) const {
    SumUnit whole(sums, col, is_by_col ? col : row, column);
    float rounded[kUnit];
    for (int i = 0; i < kUnit; ++i) rounded[i] = fmaf(*alpha, sum[i], whole[i]);
    store_unit(static_cast<__nv_bfloat16*>(sums.upper) + col * sums.upper_row_stride + column,
               rounded);
  }
};

template <typename Store>
void launch(const Chunk& chunk, const Rows& x, const TargetLists& lists, int first_col, int cols,
            const Store& store, cudaStream_t stream) {
  constexpr int kColumns = kThreads * kUnit;
  const dim3 blocks((chunk.rows + kTokens - 1) / kTokens, (chunk.hidden + kColumns - 1) / kColumns);
  target_sums<<<blocks, kThreads, 0, stream>>>(chunk, x, lists, first_col, cols, store);
}

}  // namespace

void launch_add_target_sums(const Chunk& chunk, const Rows& x, const TargetLists& lists,
                            int first_col, int cols, const float* alpha, const RowsOut& to,
                            cudaStream_t stream) {
  launch(chunk, x, lists, first_col, cols,
         ToFloats{static_cast<float*>(to.data), to.row_stride, alpha}, stream);
}

void launch_add_target_sums(const Chunk& chunk, const Rows& x, const TargetLists& lists,
                            int first_col, int cols, const float* alpha, const Halves& to,
                            cudaStream_t stream) {
  launch(chunk, x, lists, first_col, cols, ToHalves{to, alpha}, stream);
}

void launch_finish_targets(const Chunk& chunk, const Rows& x, const TargetLists& lists,
                           int first_col, int cols, const float* alpha, const Halves& to,
                           cudaStream_t stream) {
  launch(chunk, x, lists, first_col, cols, ToBf16{to, alpha, cols < chunk.rows}, stream);
}

}  // namespace flce::cuda::hopper
