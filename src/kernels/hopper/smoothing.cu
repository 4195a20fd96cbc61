// SPDX-License-Identifier: Apache-2.0
// Label smoothing's outer product q_i w_j: the sums over the vocabulary that grad_hidden and the
// loss take of it, and the sums over tokens that grad_weight and grad_bias take.
#include "kernels/hopper/bf16_rows.cuh"
#include "kernels/portable/row_math.cuh"

namespace flce::cuda::hopper {
namespace {

constexpr int kWarps = 8;
constexpr int kThreads = kWarps * kWarp;
// A warp takes 256 columns of a row, 16 bytes a lane.
constexpr int kCols = kWarp * kUnit;
// Rows of a warp that are summed in f32 before they are added in f64.
constexpr int kFold = 32;

// Of the rows of the vocabulary.
struct ClassTerms {
  Matrix w;
  const float* weights;  // null: 1
  const float* bias;     // null: 0

  __device__ const __nv_bfloat16* row(int j) const { return row_of(w, j); }
  __device__ float factor(int j) const { return weights != nullptr ? weights[j] : 1.0f; }
  // A class of weight 0 may have a bias of minus infinity.
  __device__ double number(int j) const {
    return bias != nullptr && factor(j) != 0.0f ? static_cast<double>(factor(j)) * bias[j] : 0.0;
  }
};

// Of a chunk's tokens.
struct TokenTerms {
  Rows x;
  const TokenGradient* gradients;  // of the first one
  std::int64_t first;

  __device__ const __nv_bfloat16* row(int i) const { return row_of(x, first + i); }
  __device__ float factor(int i) const { return static_cast<float>(number(i)); }
  __device__ double number(int i) const {
    return gradients[i].is_active != 0 ? gradients[i].row.q : 0.0;
  }
};

// The sum over a block, for its first thread.
__device__ double block_sum(double mine) {
  __shared__ double of_warp[kWarps];
  for (int mask = 1; mask < kWarp; mask *= 2) mine += __shfl_xor_sync(0xffffffffu, mine, mask);
  if (threadIdx.x % kWarp == 0) of_warp[threadIdx.x / kWarp] = mine;
  __syncthreads();
  double sum = 0.0;
  for (double one : of_warp) sum += one;
  return sum;
}

// A slice's part of sum factor * row, and of sum number behind it: parts (kSumSlices, hidden + 1).
template <typename Terms>
__global__ void __launch_bounds__(kThreads)
    sum_slice(const __grid_constant__ Terms terms, int rows, int hidden, double* parts) {
  __shared__ double of_warp[kWarps][kCols];
  const int lane = threadIdx.x % kWarp;
  const int warp = threadIdx.x / kWarp;
  const int col = blockIdx.x * kCols + lane * kUnit;
  const int size = (rows + kSumSlices - 1) / kSumSlices;
  const int begin = min(static_cast<int>(blockIdx.y) * size, rows);
  const int end = min(begin + size, rows);
  double* const to = parts + std::int64_t{blockIdx.y} * (hidden + 1);
  double total[kUnit] = {};
  for (int base = begin + warp; col < hidden && base < end; base += kWarps * kFold) {
    float sum[kUnit] = {};
#pragma unroll 4
    for (int row = base; row < min(base + kWarps * kFold, end); row += kWarps) {
      float value[kUnit];
      load_unit(terms.row(row) + col, value);
      const float factor = terms.factor(row);
      for (int i = 0; i < kUnit; ++i) {
        sum[i] = factor != 0.0f ? fmaf(factor, value[i], sum[i]) : sum[i];
      }
    }
    for (int i = 0; i < kUnit; ++i) total[i] += sum[i];
  }
  for (int i = 0; i < kUnit; ++i) of_warp[warp][lane * kUnit + i] = total[i];
  __syncthreads();
  const int h = blockIdx.x * kCols + threadIdx.x;
  double sum = 0.0;
  for (int w = 0; w < kWarps; ++w) sum += of_warp[w][threadIdx.x];
  if (h < hidden) to[h] = sum;
  if (blockIdx.x != 0) return;
  double numbers = 0.0;
  for (int row = begin + threadIdx.x; row < end; row += kThreads) numbers += terms.number(row);
  numbers = block_sum(numbers);
  if (threadIdx.x == 0) to[hidden] = numbers;
}

// Three bf16 numbers whose sum is `value` to 2^-24 of it.
__device__ void split(double value, __nv_bfloat16 (&piece)[3]) {
  for (__nv_bfloat16& p : piece) {
    p = __double2bfloat16(value);
    value -= static_cast<double>(__bfloat162float(p));
  }
}
// Which pieces of w_j and of a sum over tokens multiply each other: all of 2^-24 and more.
constexpr int kPairs = 6;
__device__ constexpr int kClassPiece[kPairs] = {0, 0, 0, 1, 1, 2};
__device__ constexpr int kTokenPiece[kPairs] = {0, 1, 2, 0, 1, 0};
static_assert(kPairs <= kSmoothingRows, "the others are zero");

__device__ void store_pieces(double value, const int (&order)[kPairs], __nv_bfloat16* to,
                             std::int64_t row_stride) {
  __nv_bfloat16 piece[3];
  split(value, piece);
#pragma unroll
  for (int r = 0; r < kSmoothingRows; ++r) {
    to[r * row_stride] = r < kPairs ? piece[order[r]] : __float2bfloat16(0.0f);
  }
}

struct ToClassSum {
  Smoothing to;

  __device__ void vector(int h, double sum) const { to.class_sum[h] = static_cast<float>(sum); }
  __device__ void number(double sum) const { *to.bias_sum = sum; }
};

struct ToTokenSum {
  Smoothing to;
  __nv_bfloat16* rows;  // null: not wanted
  std::int64_t row_stride;

  __device__ void vector(int h, double sum) const {
    if (rows != nullptr) store_pieces(-sum, kTokenPiece, rows + h, row_stride);
  }
  __device__ void number(double sum) const { *to.token_sum = sum; }
};

template <typename Store>
__global__ void __launch_bounds__(kThreads)
    finish_sums(const double* parts, int hidden, const __grid_constant__ Store store) {
  const int h = blockIdx.x * kThreads + threadIdx.x;
  if (h > hidden) return;
  double sum = 0.0;
#pragma unroll 8
  for (int s = 0; s < kSumSlices; ++s) sum += parts[std::int64_t{s} * (hidden + 1) + h];
  if (h < hidden) {
    store.vector(h, sum);
  } else {
    store.number(sum);
  }
}

template <typename Terms, typename Store>
void sum_rows(const Terms& terms, int rows, int hidden, double* parts, const Store& store,
              cudaStream_t stream) {
  const dim3 grid((hidden + kCols - 1) / kCols, kSumSlices);
  sum_slice<<<grid, kThreads, 0, stream>>>(terms, rows, hidden, parts);
  finish_sums<<<hidden / kThreads + 1, kThreads, 0, stream>>>(parts, hidden, store);
}

__global__ void __launch_bounds__(kThreads)
    class_rows(const float* weights, int cols, __nv_bfloat16* e, std::int64_t e_row_stride) {
  const int j = blockIdx.x * kThreads + threadIdx.x;
  if (j >= cols) return;
  store_pieces(weights != nullptr ? weights[j] : 1.0, kClassPiece, e + j, e_row_stride);
}

const float* class_weights(const Call& call) {
  return static_cast<const float*>(call.class_weight);
}

}  // namespace

void launch_class_sums(const Call& call, const Matrix& w, int hidden, const Smoothing& to,
                       cudaStream_t stream) {
  const ClassTerms terms{w, class_weights(call), static_cast<const float*>(call.bias)};
  sum_rows(terms, static_cast<int>(call.vocab), hidden, to.parts, ToClassSum{to}, stream);
}

void launch_token_sums(const Call& call, const Chunk& chunk, const Rows& x, void* xs,
                       std::int64_t xs_stride, cudaStream_t stream) {
  auto* const rows = xs == nullptr
                         ? nullptr
                         : static_cast<__nv_bfloat16*>(xs) + std::int64_t{chunk.rows} * xs_stride;
  const TokenTerms terms{x, call.gradients + chunk.first, chunk.first};
  sum_rows(terms, chunk.rows, chunk.hidden, chunk.smoothing.parts,
           ToTokenSum{chunk.smoothing, rows, xs_stride}, stream);
}

void launch_class_rows(const Call& call, int first_col, int cols, void* e,
                       std::int64_t e_row_stride, cudaStream_t stream) {
  const float* const weights = class_weights(call);
  class_rows<<<(cols + kThreads - 1) / kThreads, kThreads, 0, stream>>>(
      weights != nullptr ? weights + first_col : nullptr, cols, static_cast<__nv_bfloat16*>(e),
      e_row_stride);
}

}  // namespace flce::cuda::hopper
