// SPDX-License-Identifier: Apache-2.0
// Logits become their gradient. Where a row can wait in shared memory it is read once
// (resident_rows.cu). Elsewhere, and for f64, a block of threads reads its row twice, the second
// time mostly from the L2 cache: here.
#include "kernels/portable/row_columns.cuh"
#include "kernels/portable/token_math.cuh"

namespace flce::cuda {
namespace {

constexpr int kThreads = 512;
constexpr int kStep = kQuad * kThreads;

template <typename Acc, bool kFull>
struct Shared {
  ColumnStats<Acc, kFull> of_warp[kThreads / kWarp];
  TokenGradient gradient;
  Coefficients<Acc> coefficients;
};

// In place: gradient j of a row stands at j * sizeof(gradient), where logits up to j stood. A
// barrier between a step's reads and its writes keeps the writes, which are at most as wide, behind
// every read that is still to come.
template <typename Acc, typename T, bool kFull>
__device__ inline void write_row(const Call& call, const Acc* from, T* row, int cols,
                                 const Coefficients<Acc>& c, const LogitMap<Acc, kFull>& map) {
  for (int base = 0; base < cols; base += kStep) {
    const int j = base + kQuad * static_cast<int>(threadIdx.x);
    Acc z[kQuad];
    Quad<T> g;
    if (j + kQuad <= cols) {
      load_quad(from, j, z);
      g = gradient_quad<T, true>(call, z, kQuad, j, c, map);
    } else if (j < cols) {
      load_some(from, j, cols, z);
      g = gradient_quad<T, false>(call, z, cols - j, j, c, map);
    }
    __syncthreads();
    if (j + kQuad <= cols) {
      store_quad(row, j, g);
    } else {
      store_some(row, j, cols, g);
    }
  }
}

template <typename Acc, typename T, bool kFull>
__global__ void __launch_bounds__(kThreads)
    streamed_rows(const __grid_constant__ Call call, LogitBlock block) {
  __shared__ Shared<Acc, kFull> shared;
  const std::int64_t token = block.first_token + blockIdx.x;
  Acc* const logits = static_cast<Acc*>(block.data) + blockIdx.x * block.row_stride;
  T* const gradient = reinterpret_cast<T*>(logits);
  const int cols = static_cast<int>(block.cols);  // V is below 2^31
  const std::int64_t target = call.states[token].target;
  bool is_active = false;
  if (target >= 0) {  // or not, for the whole block: then nothing of the row is looked at
    const auto map = map_of<Acc, kFull>(call, token);
    ColumnStats<Acc, kFull> stats;
    sum_columns<kStep>(call, logits, kQuad * static_cast<int>(threadIdx.x), cols, 0,
                       static_cast<int>(target - call.shard_begin), map, stats);
    const ColumnStats<Acc, kFull> sum = merge_block<kThreads>(stats, shared.of_warp);
    if (threadIdx.x == 0) {
      shared.gradient = call.gradients[token];  // the factors
      const RowStats row = row_stats_of(sum, map, shared.gradient.target >= 0);
      add_statistics(row, loss_params(call), shared.gradient);
      shared.coefficients = Coefficients<Acc>(shared.gradient, map.kUnit);
      call.states[token].stats = row;
      call.gradients[token] = shared.gradient;
    }
    __syncthreads();
    is_active = shared.gradient.is_active != 0;
    const Coefficients<Acc> c = shared.coefficients;
    if (is_active) write_row<Acc, T, kFull>(call, logits, gradient, cols, c, map);
  }
  if (is_active) return;
  for (int j = static_cast<int>(threadIdx.x); j < cols; j += kThreads) {
    gradient[j] = round_to<T>(0.0);
  }
}

}  // namespace

void launch_fused_rows(const Call& call, const LogitBlock& logits, cudaStream_t stream) {
  if (logits.rows <= 0 || launch_resident_rows(call, logits, stream)) return;
  visit_real(call.dtype, [&](auto type) {
    using T = typename decltype(type)::type;
    auto* kernel = streamed_rows<AccOf<T>, T, true>;
    if constexpr (sizeof(T) == 2) {
      if (!needs_full(call)) kernel = streamed_rows<AccOf<T>, T, false>;
    }
    kernel<<<static_cast<unsigned>(logits.rows), kThreads, 0, stream>>>(call, logits);
  });
}

}  // namespace flce::cuda
