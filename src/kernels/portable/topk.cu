// SPDX-License-Identifier: Apache-2.0
// The k largest logits of a row, in order: by value, then by column. One block of threads a row.
//
// Each thread owns every kThreads-th column and knows the best of them that was not taken yet. A
// round takes the best of all threads; only its owner's columns are then looked through again, by
// the owner's whole warp. So a row is read once, and each of the k rounds reads a 1/kThreads of it.
#include "kernels/portable/row_math.cuh"
#include "kernels/portable/token_math.cuh"

namespace flce::cuda {
namespace {

constexpr int kThreads = 256;

template <typename Acc>
struct Best {
  Acc value;
  std::int64_t col;  // -1: none

  __device__ bool comes_before(const Best& other) const {
    if (col < 0 || other.col < 0) return col >= 0;
    return value > other.value || (value == other.value && col < other.col);
  }
};

template <typename Acc>
__device__ inline Best<Acc> best_of_lanes(Best<Acc> mine) {
  for (int mask = kWarp / 2; mask > 0; mask /= 2) {
    const Best<Acc> other{from_lane_xor(mine.value, mask),
                          from_lane_xor(static_cast<long long>(mine.col), mask)};
    if (other.comes_before(mine)) mine = other;
  }
  return mine;
}

// The candidates of two lists, both in order; columns of `first` are smaller on ties.
__device__ inline void merge_lists(TopkCandidate* list, TopkCandidate* more, std::int64_t k) {
  // `more` holds the new ones; the result is built from the back of what fits, so first the place
  // of the cut is found.
  std::int64_t a = 0;
  std::int64_t b = 0;
  while (a + b < k) {
    const bool has_a = a < k && list[a].index >= 0;
    const bool has_b = b < k && more[b].index >= 0;
    if (!has_a && !has_b) break;
    if (has_a && (!has_b || list[a].value >= more[b].value)) {
      ++a;
    } else {
      ++b;
    }
  }
  // The a best of the old and the b best of the new ones, merged from the end.
  const std::int64_t kept = a + b;
  for (std::int64_t n = kept; n < k; ++n) list[n] = TopkCandidate{};
  for (std::int64_t n = kept - 1; n >= 0 && b > 0; --n) {
    if (a > 0 && list[a - 1].value < more[b - 1].value) {
      list[n] = list[--a];
    } else {
      list[n] = more[--b];
    }
  }
}

template <typename Acc>
struct RowReader {
  const Acc* row;
  std::int64_t cols;
  std::int64_t first_col;
  LogitMap<Acc, true> map;

  __device__ Acc operator()(std::int64_t j) const {
    return map.v(map.biased(row[j], static_cast<int>(first_col + j))) * map.factor;
  }
  // The best of `thread`'s columns from its `from`-th on in steps of `step`, after `last`.
  __device__ Best<Acc> best(std::int64_t thread, std::int64_t from, std::int64_t step,
                            const Best<Acc>& last) const {
    Best<Acc> found{0, -1};
    for (std::int64_t j = thread + from * kThreads; j < cols; j += step * kThreads) {
      const Best<Acc> one{(*this)(j), j};
      const bool is_free = last.col < 0 || last.comes_before(one);
      // NaN comes before nothing and nothing before it: it is never taken.
      if (is_free && one.value == one.value && one.comes_before(found)) found = one;
    }
    return found;
  }
};

template <typename Acc>
__global__ void __launch_bounds__(kThreads)
    topk_rows(const __grid_constant__ Call call, LogitBlock block, std::int64_t first_row,
              bool is_first) {
  __shared__ Best<Acc> of_warp[kThreads / kWarp];
  const std::int64_t token = block.first_token + blockIdx.x;
  if (call.states[token].target < 0) return;
  TopkCandidate* const list = call.candidates + (first_row + blockIdx.x) * 2 * call.topk;
  TopkCandidate* const found = is_first ? list : list + call.topk;
  const RowReader<Acc> read{static_cast<const Acc*>(block.data) + blockIdx.x * block.row_stride,
                            block.cols, block.first_col, map_of<Acc, true>(call, token)};
  const int lane = static_cast<int>(threadIdx.x) % kWarp;
  const int warp = static_cast<int>(threadIdx.x) / kWarp;
  Best<Acc> mine = read.best(threadIdx.x, 0, 1, {0, -1});
  for (std::int64_t n = 0; n < call.topk; ++n) {
    const Best<Acc> of_mine = best_of_lanes(mine);
    __syncthreads();
    if (lane == 0) of_warp[warp] = of_mine;
    __syncthreads();
    Best<Acc> top = of_warp[0];
    for (int w = 1; w < kThreads / kWarp; ++w) {
      if (of_warp[w].comes_before(top)) top = of_warp[w];
    }
    if (threadIdx.x == 0) {
      found[n] = top.col < 0
                     ? TopkCandidate{}
                     : TopkCandidate{static_cast<double>(top.value), block.first_col + top.col};
    }
    const int owner = static_cast<int>(top.col % kThreads);
    if (top.col >= 0 && owner / kWarp == warp) {
      const Best<Acc> next = best_of_lanes(read.best(owner, lane, kWarp, top));
      if (lane == owner % kWarp) mine = next;
    }
  }
  if (threadIdx.x == 0 && !is_first) merge_lists(list, found, call.topk);
}

__global__ void finish_topk(const __grid_constant__ Call call, std::int64_t first_token,
                            std::int64_t rows) {
  const std::int64_t at = blockIdx.x * std::int64_t{blockDim.x} + threadIdx.x;
  if (at >= rows * call.topk) return;
  const std::int64_t token = first_token + at / call.topk;
  const std::int64_t n = at % call.topk;
  const TokenState& state = call.states[token];
  double value = state.target == kOutOfRange ? quiet_nan() : 0.0;
  std::int64_t index = 0;
  if (state.target >= 0) {
    const TopkCandidate one = call.candidates[at / call.topk * 2 * call.topk + n];
    const double log_sum = log(sum_of_row(state.stats));
    value = one.index < 0 ? quiet_nan() : (one.value - state.stats.max) - log_sum;
    index = one.index < 0 ? 0 : one.index;
  }
  const std::int64_t row_stride = call.topk_logprob.stride;
  RealsOut row = call.topk_logprob;
  row.stride = 1;
  store_real(row, token * row_stride + n, value);
  if (call.topk_index.data != nullptr) {
    call.topk_index.data[token * call.topk_index.stride + n] = index;
  }
}

}  // namespace

void launch_topk(const Call& call, const LogitBlock& logits, std::int64_t first_row, bool is_first,
                 cudaStream_t stream) {
  if (logits.rows <= 0 || call.topk == 0) return;
  const auto kernel = call.is_f64 ? topk_rows<double> : topk_rows<float>;
  kernel<<<static_cast<unsigned>(logits.rows), kThreads, 0, stream>>>(call, logits, first_row,
                                                                      is_first);
}

void launch_finish_topk(const Call& call, std::int64_t first_token, std::int64_t rows,
                        cudaStream_t stream) {
  if (rows <= 0 || call.topk == 0) return;
  finish_topk<<<blocks_for(rows * call.topk, kThreads), kThreads, 0, stream>>>(call, first_token,
                                                                               rows);
}

}  // namespace flce::cuda
