// SPDX-License-Identifier: Apache-2.0
// The two halves of the fused pass on their own, for methods that keep logits or see a part of a
// row at a time: statistics of a block of logits, and its gradient from known coefficients. One
// block of threads a row.
#include "kernels/portable/row_math.cuh"
#include "kernels/portable/token_math.cuh"

namespace flce::cuda {
namespace {

constexpr int kThreads = 256;

// kRowThreads threads a row: a warp where rows are short, so that a row's sum is the warp's, or the
// block. Several warps of a block then have rows of their own.
template <typename Acc, bool kFull, int kRowThreads>
__global__ void __launch_bounds__(kThreads)
    row_stats(const __grid_constant__ Call call, LogitBlock block, bool is_first) {
  __shared__ StatsScratch scratch;
  const int thread = static_cast<int>(threadIdx.x) % kRowThreads;
  const std::int64_t row_index =
      blockIdx.x * std::int64_t{kThreads / kRowThreads} + threadIdx.x / kRowThreads;
  if (row_index >= block.rows) return;  // a whole warp of a block of several rows
  const std::int64_t token = block.first_token + row_index;
  TokenState& state = call.states[token];
  if (state.target < 0) return;  // likewise
  constexpr int kCount = Piece<Acc>::kCount;
  const Acc* row = static_cast<const Acc*>(block.data) + row_index * block.row_stride;
  const auto map = map_of<Acc, kFull>(call, temperature_of(call, token));
  const auto* weights = static_cast<const Acc*>(call.class_weight);
  const std::int64_t target_col = state.target - call.shard_begin;
  ColumnStats<Acc, kFull> stats;
#pragma unroll 4
  for (std::int64_t j = kCount * thread; j < block.cols; j += kCount * kRowThreads) {
    Acc u[kCount];
    const int count = block.cols - j < kCount ? static_cast<int>(block.cols - j) : kCount;
    Piece<Acc> z;
    if (count == kCount) {
      z = *reinterpret_cast<const Piece<Acc>*>(row + j);
    } else {
      for (int i = 0; i < kCount; ++i) z.value[i] = i < count ? row[j + i] : Acc(0);
    }
    const std::int64_t col = block.first_col + j;
#pragma unroll
    for (int i = 0; i < kCount; ++i) {
      if (i < count) z.value[i] = map.with_bias(z.value[i], col + i);
      u[i] = map.u(z.value[i]);
      if (kFull && i < count && col + i == target_col) stats.target_slope = map.slope(z.value[i]);
    }
    stats.add(u, count, col, target_col, weights, call.wants_best);
  }
  RowStats sum = kRowThreads == kWarp ? merge_columns(stats) : merge_block(stats, scratch);
  if (thread != 0) return;
  const std::int64_t behind = block.first_col + block.cols;
  if (!kFull && target_col >= block.first_col && target_col < behind) sum.target_slope = 1.0;
  RowStats all = is_first ? RowStats{} : state.stats;
  merge(all, sum);
  state.stats = all;
}

// In place the gradient of a step may only be written behind what every thread has read: the
// barrier. Elsewhere it costs little.
template <typename Acc, typename T, bool kFull>
__global__ void __launch_bounds__(kThreads)
    row_gradient(const __grid_constant__ Call call, LogitBlock block, GradientBlock to) {
  constexpr int kCount = 8;  // columns of a thread and step
  const std::int64_t token = block.first_token + blockIdx.x;
  const Acc* from = static_cast<const Acc*>(block.data) + blockIdx.x * block.row_stride;
  T* const row = static_cast<T*>(to.data) + blockIdx.x * to.row_stride;
  const bool is_active = call.gradients[token].is_active != 0;
  const Coefficients<Acc> c(call.gradients[token]);
  LogitMap<Acc, kFull> map;
  if (is_active) map = map_of<Acc, kFull>(call, temperature_of(call, token));
  const auto* weights = static_cast<const Acc*>(call.class_weight);
  for (std::int64_t base = 0; base < block.cols; base += kCount * kThreads) {
    const std::int64_t j = base + kCount * threadIdx.x;
    T g[kCount];
    const int count = block.cols - j < kCount ? static_cast<int>(block.cols - j) : kCount;
#pragma unroll
    for (int i = 0; i < kCount; ++i) {
      Acc value = 0;
      const std::int64_t col = block.first_col + j + i;
      if (is_active && i < count) {
        value = c.template gradient<kFull>(map.with_bias(from[j + i], col), col, map, weights);
      }
      g[i] = round_to<T>(value);
    }
    __syncthreads();
    if (count == kCount) {
      constexpr int kPieces = kCount / Piece<T>::kCount;
#pragma unroll
      for (int p = 0; p < kPieces; ++p) {
        reinterpret_cast<Piece<T>*>(row + j)[p] = reinterpret_cast<const Piece<T>*>(g)[p];
      }
    } else {
      for (int i = 0; i < count; ++i) row[j + i] = g[i];
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

template <typename Acc>
void launch_stats_of(const Call& call, const LogitBlock& logits, bool is_first,
                     cudaStream_t stream) {
  if (needs_full(call)) {
    launch_stats_typed<Acc, true>(call, logits, is_first, stream);
  } else {
    launch_stats_typed<Acc, false>(call, logits, is_first, stream);
  }
}

}  // namespace

void launch_row_stats(const Call& call, const LogitBlock& logits, bool is_first,
                      cudaStream_t stream) {
  if (logits.rows <= 0) return;
  if (call.is_f64) {
    launch_stats_of<double>(call, logits, is_first, stream);
  } else {
    launch_stats_of<float>(call, logits, is_first, stream);
  }
}

void launch_row_gradient(const Call& call, const LogitBlock& logits, const GradientBlock& gradient,
                         cudaStream_t stream) {
  if (logits.rows <= 0) return;
  visit_dtype(call.dtype, [&](auto type) {
    using T = typename decltype(type)::type;
    const auto kernel = needs_full(call) ? row_gradient<AccOf<T>, T, true>
                                         : row_gradient<AccOf<T>, T, false>;
    kernel<<<static_cast<unsigned>(logits.rows), kThreads, 0, stream>>>(call, logits, gradient);
  });
}

}  // namespace flce::cuda
