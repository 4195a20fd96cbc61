// SPDX-License-Identifier: Apache-2.0
// The two halves of the fused pass on their own, for methods that keep logits or see a part of a
// row at a time: statistics of a block of logits, and its gradient from known coefficients. One
// block of threads a row.
#include "kernels/portable/row_columns.cuh"
#include "kernels/portable/token_math.cuh"

namespace flce::cuda {
namespace {

constexpr int kThreads = 256;

// kRowThreads threads a row: a warp where rows are short, so that a row's sum is the warp's, or the
// block. Several warps of a block then have rows of their own.
template <typename Acc, bool kFull, int kRowThreads>
__global__ void __launch_bounds__(kThreads)
    row_stats(const __grid_constant__ Call call, LogitBlock block, bool is_first) {
  __shared__ ColumnStats<Acc, kFull> of_warp[kThreads / kWarp];
  const int thread = static_cast<int>(threadIdx.x) % kRowThreads;
  const std::int64_t row_index =
      blockIdx.x * std::int64_t{kThreads / kRowThreads} + threadIdx.x / kRowThreads;
  if (row_index >= block.rows) return;  // a whole warp of a block of several rows
  const std::int64_t token = block.first_token + row_index;
  TokenState& state = call.states[token];
  if (state.target < 0) return;  // likewise
  const Acc* row = static_cast<const Acc*>(block.data) + row_index * block.row_stride;
  const auto map = map_of<Acc, kFull>(call, token);
  const int target_col = static_cast<int>(state.target - call.shard_begin);
  const int cols = static_cast<int>(block.cols);
  const int first_col = static_cast<int>(block.first_col);
  ColumnStats<Acc, kFull> stats;
  sum_columns<kQuad * kRowThreads>(call, row, kQuad * thread, cols, first_col, target_col, map,
                                   stats);
  stats = kRowThreads == kWarp ? merge_lanes<kWarp>(stats) : merge_block<kThreads>(stats, of_warp);
  if (thread != 0) return;
  const bool has_target = target_col >= first_col && target_col - first_col < cols;
  const RowStats sum = row_stats_of(stats, map, has_target);
  RowStats all = is_first ? RowStats{} : state.stats;
  merge(all, sum);
  state.stats = all;
}

// One block a row. In place the gradient of a step may only be written behind what every thread has
// read: the barrier. Elsewhere it costs little.
template <typename Acc, typename T, bool kFull>
__global__ void __launch_bounds__(kThreads)
    row_gradient(const __grid_constant__ Call call, LogitBlock block, GradientBlock to) {
  const std::int64_t token = block.first_token + blockIdx.x;
  const Acc* from = static_cast<const Acc*>(block.data) + blockIdx.x * block.row_stride;
  T* const row = static_cast<T*>(to.data) + blockIdx.x * to.row_stride;
  const bool is_active = call.gradients[token].is_active != 0;
  const Coefficients<Acc> c(call.gradients[token], LogitMap<Acc, kFull>::kUnit);
  LogitMap<Acc, kFull> map;
  if (is_active) map = map_of<Acc, kFull>(call, token);
  constexpr int kQuads = 2;  // of a thread and step
  constexpr int kStep = kQuad * kThreads;
  const int cols = static_cast<int>(block.cols);
  const int first_col = static_cast<int>(block.first_col);
  for (int base = 0; base < cols; base += kQuads * kStep) {
    Quad<T> g[kQuads];
#pragma unroll
    for (int q = 0; q < kQuads; ++q) {
      const int j = base + q * kStep + kQuad * static_cast<int>(threadIdx.x);
      Acc z[kQuad] = {};
      if (is_active && j + kQuad <= cols) {
        load_quad(from, j, z);
        g[q] = gradient_quad<T, true>(call, z, kQuad, first_col + j, c, map);
      } else if (is_active && j < cols) {
        load_some(from, j, cols, z);
        g[q] = gradient_quad<T, false>(call, z, cols - j, first_col + j, c, map);
      } else {
        g[q] = rounded<T>(z);
      }
    }
    __syncthreads();
#pragma unroll
    for (int q = 0; q < kQuads; ++q) {
      const int j = base + q * kStep + kQuad * static_cast<int>(threadIdx.x);
      if (j + kQuad <= cols) {
        store_quad(row, j, g[q]);
      } else {
        store_some(row, j, cols, g[q]);
      }
    }
  }
}

// Rows up to this many logits are a warp's.
constexpr std::int64_t kWarpCols = 8192;

template <typename Acc, bool kFull>
void launch_stats_typed(const Call& call, const LogitBlock& logits, bool is_first,
                        cudaStream_t stream) {
  if (logits.cols <= kWarpCols) {
    const unsigned blocks = blocks_for(logits.rows, kThreads / kWarp);
    row_stats<Acc, kFull, kWarp><<<blocks, kThreads, 0, stream>>>(call, logits, is_first);
  } else {
    const auto blocks = static_cast<unsigned>(logits.rows);
    row_stats<Acc, kFull, kThreads><<<blocks, kThreads, 0, stream>>>(call, logits, is_first);
  }
}

}  // namespace

void launch_row_stats(const Call& call, const LogitBlock& logits, bool is_first,
                      cudaStream_t stream) {
  if (logits.rows <= 0) return;
  if (call.is_f64) {
    launch_stats_typed<double, true>(call, logits, is_first, stream);
  } else if (needs_full(call)) {
    launch_stats_typed<float, true>(call, logits, is_first, stream);
  } else {
    launch_stats_typed<float, false>(call, logits, is_first, stream);
  }
}

void launch_row_gradient(const Call& call, const LogitBlock& logits, const GradientBlock& gradient,
                         cudaStream_t stream) {
  if (logits.rows <= 0) return;
  visit_real(call.dtype, [&](auto type) {
    using T = typename decltype(type)::type;
    auto* kernel = row_gradient<AccOf<T>, T, true>;
    if constexpr (sizeof(T) == 2) {
      if (!needs_full(call)) kernel = row_gradient<AccOf<T>, T, false>;
    }
    kernel<<<static_cast<unsigned>(logits.rows), kThreads, 0, stream>>>(call, logits, gradient);
  });
}

}  // namespace flce::cuda
