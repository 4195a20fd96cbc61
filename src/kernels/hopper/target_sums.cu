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
// Tokens that a thread looks at in one step, and rows that it loads before it adds the first.
constexpr int kLook = 8;
constexpr int kBatch = 4;
// Of a block, which takes its targets one after another.
constexpr int kFewTokens = 8;
constexpr int kManyTokens = 8192;

// Tokens in their order.
struct TokenList {
  int tokens[kThreads * kLook];
  int counts[kWarps];
};

// A bit for each of kLook tokens from `base` on that has the target and a term.
__device__ unsigned matches_of(const Chunk& chunk, int target, int base) {
  unsigned matches = 0;
  if (base + kLook <= chunk.rows) {
    const auto* const from = reinterpret_cast<const int4*>(chunk.tokens.target + base);
    const int4 a = from[0];
    const int4 b = from[1];
    const int of[kLook] = {a.x, a.y, a.z, a.w, b.x, b.y, b.z, b.w};
    for (int i = 0; i < kLook; ++i) matches |= unsigned{of[i] == target} << i;
  } else {
    for (int i = 0; base + i < chunk.rows; ++i) {
      matches |= unsigned{chunk.tokens.target[base + i] == target} << i;
    }
  }
  for (unsigned left = matches; left != 0; left &= left - 1) {
    const int i = __ffs(static_cast<int>(left)) - 1;
    if (chunk.tokens.target_term[base + i] == 0.0f) matches &= ~(1u << i);
  }
  return matches;
}

// The target's tokens among kThreads * kLook from `base` on, a multiple of kLook. Most steps find
// none, and cost one barrier.
__device__ int list_tokens(const Chunk& chunk, int target, int base, TokenList& list) {
  const int own_base = base + static_cast<int>(threadIdx.x) * kLook;
  unsigned matches = matches_of(chunk, target, own_base);
  if (__syncthreads_or(static_cast<int>(matches)) == 0) return 0;
  const int lane = threadIdx.x % kWarp;
  const int warp = threadIdx.x / kWarp;
  const int own = __popc(matches);
  int up_to = own;
  for (int by = 1; by < kWarp; by *= 2) {
    const int before = __shfl_up_sync(0xffffffffu, up_to, by);
    if (lane >= by) up_to += before;
  }
  if (lane == kWarp - 1) list.counts[warp] = up_to;
  __syncthreads();
  int count = 0;
  int at = up_to - own;
  for (int w = 0; w < kWarps; ++w) {
    if (w < warp) at += list.counts[w];
    count += list.counts[w];
  }
  for (; matches != 0; matches &= matches - 1) {
    list.tokens[at++] = own_base + __ffs(static_cast<int>(matches)) - 1;
  }
  __syncthreads();
  return count;
}

// sum += t_i x_i of up to kBatch tokens, added in their order.
__device__ void add_batch(const Chunk& chunk, const Rows& x, const int* tokens, int count,
                          int column, float (&sum)[kUnit]) {
  uint4 bits[kBatch];
  float term[kBatch];
#pragma unroll
  for (int k = 0; k < kBatch; ++k) {
    const int token = tokens[min(k, count - 1)];
    term[k] = chunk.tokens.target_term[token];
    bits[k] = bits_of_unit(row_of(x, chunk.first + token) + column);
  }
#pragma unroll
  for (int k = 0; k < kBatch; ++k) {
    if (k >= count) break;
    float value[kUnit];
    unpack_unit(bits[k], value);
    for (int i = 0; i < kUnit; ++i) sum[i] = fmaf(term[k], value[i], sum[i]);
  }
}

// One target's sum of kUnit columns of the hidden states, for each thread of the block.
__device__ void sum_target(const Chunk& chunk, const Rows& x, int target, int first, int count,
                           int column, TokenList& list, float (&sum)[kUnit]) {
  if (count == 1) {
    if (column >= chunk.hidden) return;
    const float term = chunk.tokens.target_term[first];
    load_unit(row_of(x, chunk.first + first) + column, sum);
    for (float& value : sum) value *= term;
    return;
  }
  for (int base = first / kLook * kLook; count > 0 && base < chunk.rows; base += kThreads * kLook) {
    const int found = list_tokens(chunk, target, base, list);
    for (int k = 0; column < chunk.hidden && k < found; k += kBatch) {
      add_batch(chunk, x, list.tokens + k, min(found - k, kBatch), column, sum);
    }
    count -= found;
  }
}

// Store(col, row, column, sum) takes kUnit columns of a target's sum.
template <typename Store>
__global__ void __launch_bounds__(kThreads)
    target_sums(const __grid_constant__ Chunk chunk, const Rows x, const TargetLists lists,
                int first_col, int cols, int block_tokens, const Store store) {
  __shared__ TokenList list;
  const int column = (blockIdx.y * kThreads + threadIdx.x) * kUnit;
  // A lane of each warp looks at a token: most blocks of a slab have nothing to do.
  const int lane = threadIdx.x % kWarp;
  const int first_row = blockIdx.x * block_tokens;
  int own_target = 0;
  int own_count = 0;
  if (lane < block_tokens && first_row + lane < chunk.rows) {
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
    sum_target(chunk, x, target, row, count, column, list, sum);
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
  // Few blocks where there are many tokens: a slab has the targets of few.
  const int block_tokens = chunk.rows > kManyTokens ? kWarp : kFewTokens;
  const dim3 blocks((chunk.rows + block_tokens - 1) / block_tokens,
                    (chunk.hidden + kColumns - 1) / kColumns);
  target_sums<<<blocks, kThreads, 0, stream>>>(chunk, x, lists, first_col, cols, block_tokens,
                                               store);
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
