// SPDX-License-Identifier: Apache-2.0
// Where a row's exponents begin: guessed before the first product, judged after it.
#include "kernels/hopper/bf16_rows.cuh"
#include "kernels/portable/row_math.cuh"
#include "kernels/portable/token_math.cuh"

namespace flce::cuda::hopper {
namespace {

constexpr int kThreads = 128;
constexpr int kWarps = kThreads / kWarp;

// Exponents of a row beyond this are made again: bf16 and f32 hold 2^+-126, and a sum, a scale and
// a product with a hidden state need room.
constexpr float kSafe = 80.0f;

struct Two {
  double a, b;
};
__device__ inline Two plus(Two x, Two y) { return {x.a + y.a, x.b + y.b}; }

// The sums over a block, for all threads; scratch is free again afterwards.
__device__ inline Two block_sum(Two mine, Two* scratch) {
  for (int mask = 1; mask < kWarp; mask *= 2) {
    mine = plus(mine, {__shfl_xor_sync(0xffffffffu, mine.a, mask),
                       __shfl_xor_sync(0xffffffffu, mine.b, mask)});
  }
  if (threadIdx.x % kWarp == 0) scratch[threadIdx.x / kWarp] = mine;
  __syncthreads();
  Two sum = scratch[0];
  for (int w = 1; w < kWarps; ++w) sum = plus(sum, scratch[w]);
  __syncthreads();
  return sum;
}
__device__ inline double block_max(double mine, Two* scratch) {
  for (int mask = 1; mask < kWarp; mask *= 2) {
    mine = fmax(mine, __shfl_xor_sync(0xffffffffu, mine, mask));
  }
  if (threadIdx.x % kWarp == 0) scratch[threadIdx.x / kWarp].a = mine;
  __syncthreads();
  double largest = scratch[0].a;
  for (int w = 1; w < kWarps; ++w) largest = fmax(largest, scratch[w].a);
  __syncthreads();
  return largest;
}

// The largest of a row's logits as far as a sample can tell: the largest one of it, or what a
// normal distribution of its mean and deviation has among V.
__device__ double estimate(const float* sample, int count, double sign, double spread,
                           Two* scratch) {
  double largest = -1e300;
  Two sums{0.0, 0.0};  // of what is finite, and how many
  for (int j = threadIdx.x; j < count; j += kThreads) {
    const double z = sign * sample[j];
    largest = fmax(largest, z);
    if (isfinite(z)) sums = plus(sums, {z, 1.0});
  }
  largest = block_max(largest, scratch);
  sums = block_sum(sums, scratch);
  const double mean = sums.a / sums.b;
  Two squares{0.0, 0.0};
  for (int j = threadIdx.x; j < count; j += kThreads) {
    const double z = sign * sample[j];
    if (isfinite(z)) squares.a += (z - mean) * (z - mean);
  }
  squares = block_sum(squares, scratch);
  return fmax(largest, mean + spread * sqrt(squares.a / sums.b));
}

__device__ inline float factor_of(const Call& call, std::int64_t token) {
  return static_cast<float>(call.scale * kLog2E / temperature_of(call, token));
}

__device__ inline void store_token_row(const Call& call, const Chunk& chunk, int row, float factor,
                                       float offset) {
  const std::int64_t target = call.states[chunk.first + row].target;
  chunk.tokens.factor[row] = factor;
  chunk.tokens.offset[row] = offset;
  chunk.tokens.target[row] = target < 0 ? -1 : static_cast<int>(target);
}

__global__ void __launch_bounds__(kThreads)
    offsets(const __grid_constant__ Call call, const __grid_constant__ Chunk chunk, const Rows x,
            const Matrix w, const float* sample, int sample_cols) {
  __shared__ Two scratch[kWarps];
  const int row = blockIdx.x;
  const std::int64_t token = chunk.first + row;
  const std::int64_t target = call.states[token].target;
  const double spread = sqrt(2.0 * log(static_cast<double>(call.vocab)));
  // A logit is the product times the scale, which may be negative.
  const double sign = call.scale < 0.0 ? -1.0 : 1.0;
  const float* const z = sample + std::int64_t{row} * sample_cols;
  const double reference = sign * estimate(z, sample_cols, sign, spread, scratch);
  double product = 0.0;
  if (target >= 0) {
    const __nv_bfloat16* const a = row_of(x, token);
    const __nv_bfloat16* const b = row_of(w, target);
    float dot = 0.0f;
    for (int h = threadIdx.x; h < chunk.hidden; h += kThreads) {
      dot = fmaf(__bfloat162float(a[h]), __bfloat162float(b[h]), dot);
    }
    product = block_sum({dot, 0.0}, scratch).a;
  }
  if (threadIdx.x != 0) return;
  const float factor = factor_of(call, token);
  double offset = reference * static_cast<double>(factor);
  if (target >= 0) {
    const double logit = product * static_cast<double>(factor);
    call.states[token].stats.target = logit * kLn2;
    offset = fmax(offset, logit);
  }
  const float rounded = static_cast<float>(offset);
  store_token_row(call, chunk, row, factor, isfinite(rounded) ? rounded : 0.0f);
}

__global__ void known_offsets(const __grid_constant__ Call call,
                              const __grid_constant__ Chunk chunk) {
  const int row = blockIdx.x * blockDim.x + threadIdx.x;
  if (row >= chunk.rows) return;
  const std::int64_t token = chunk.first + row;
  const double size = fabs(call.gradients[token].row.a);
  const double power = size > 0.0 && isfinite(size) ? log2(size) : 0.0;
  const double offset = call.states[token].stats.max * kLog2E - power;
  store_token_row(call, chunk, row, factor_of(call, token), static_cast<float>(offset));
}

constexpr int kFinishRows = 32;
constexpr int kFinishSlices = 8;

__global__ void __launch_bounds__(kFinishRows* kFinishSlices)
    finish_rows(const __grid_constant__ Call call, const __grid_constant__ Chunk chunk,
                const TilePart* parts, int num_tiles, std::int64_t part_stride, int* groups,
                bool is_last) {
  __shared__ double sums[kFinishSlices][kFinishRows];
  __shared__ float largests[kFinishSlices][kFinishRows];
  const int lane = threadIdx.x % kFinishRows;
  const int slice = threadIdx.x / kFinishRows;
  const int row = blockIdx.x * kFinishRows + lane;
  // A group begins on a multiple of the block's rows.
  if (is_last && groups[blockIdx.x * kFinishRows / kGroupRows] == 0) return;
  double sum = 0.0;
  float largest = -3.0e38f;
  if (row < chunk.rows) {
    for (int tile = slice; tile < num_tiles; tile += kFinishSlices) {
      const TilePart part = parts[tile * part_stride + row];
      sum += part.sum;
      largest = fmaxf(largest, part.largest);
    }
  }
  sums[slice][lane] = sum;
  largests[slice][lane] = largest;
  __syncthreads();
  if (slice != 0 || row >= chunk.rows) return;
  for (int s = 1; s < kFinishSlices; ++s) {
    sum += sums[s][lane];
    largest = fmaxf(largest, largests[s][lane]);
  }
  RowStats& stats = call.states[chunk.first + row].stats;
  const float offset = chunk.tokens.offset[row];
  // An infinite logit has no softmax; a NaN shows in the sum already.
  if (largest > 3.0e38f) sum = quiet_nan();
  if (!is_last && fabsf(largest) > kSafe && sum == sum) {
    chunk.tokens.offset[row] = offset + largest;
    groups[row / kGroupRows] = 1;
  }
  stats.max = static_cast<double>(offset) * kLn2;
  stats.others = sum;
  stats.target_slope = 1.0;
}

}  // namespace

void launch_offsets(const Call& call, const Chunk& chunk, const Rows& x, const Matrix& w,
                    const float* sample, int sample_cols, cudaStream_t stream) {
  offsets<<<chunk.rows, kThreads, 0, stream>>>(call, chunk, x, w, sample, sample_cols);
}

void launch_known_offsets(const Call& call, const Chunk& chunk, cudaStream_t stream) {
  known_offsets<<<(chunk.rows + kThreads - 1) / kThreads, kThreads, 0, stream>>>(call, chunk);
}

void launch_finish_rows(const Call& call, const Chunk& chunk, const TilePart* parts, int num_tiles,
                        std::int64_t part_stride, int* groups, bool is_last, cudaStream_t stream) {
  static_assert(kGroupRows % kFinishRows == 0, "a block looks at one group");
  const int blocks = (chunk.rows + kFinishRows - 1) / kFinishRows;
  finish_rows<<<blocks, kFinishRows * kFinishSlices, 0, stream>>>(call, chunk, parts, num_tiles,
                                                                  part_stride, groups, is_last);
}

}  // namespace flce::cuda::hopper
