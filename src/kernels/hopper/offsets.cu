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
// log S and the mean exponent, whose difference the entropy is, grow with the distance.
constexpr float kSafeForEntropy = 20.0f;

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

// From a product to a logit before the temperature, as the first product's visitor makes it.
struct LogitMap {
  bool is_plain;  // the scale is a part of the factor
  double scale, softcap;
  const float* bias;

  __device__ explicit LogitMap(const Call& call)
      : is_plain(!has_options(call)),
        scale(static_cast<float>(call.scale)),
        softcap(static_cast<float>(call.softcap)),
        bias(static_cast<const float*>(call.bias)) {}

  // Before the softcap.
  __device__ double biased(double product, std::int64_t col) const {
    if (is_plain) return product;
    return scale * product + (bias != nullptr ? static_cast<double>(bias[col]) : 0.0);
  }
  __device__ double capped(double z) const {
    if (softcap == 0.0) return z;
    const double power = exp(-2.0 * fabs(z / softcap));
    return copysign(softcap * (1.0 - power) / (1.0 + power), z);
  }
  // 1 - tanh^2
  __device__ double slope(double z) const {
    if (softcap == 0.0) return 1.0;
    const double power = exp(-2.0 * fabs(z / softcap));
    return 4.0 * power / ((1.0 + power) * (1.0 + power));
  }
};

// Products of a token with some rows of the vocabulary.
struct Sample {
  const float* product;
  int count;
  std::int64_t step;  // rows of the vocabulary from one to the next
};

// The largest of a row's logits as far as a sample can tell: the largest one of it, or what a
// normal distribution of its mean and deviation has among V. `sign`: of what logits are multiplied
// by later.
__device__ double estimate(const Sample& sample, const LogitMap& map, double sign, double spread,
                           Two* scratch) {
  const auto logit = [&](int j) {
    return sign * map.capped(map.biased(sample.product[j], j * sample.step));
  };
  double largest = -1e300;
  Two sums{0.0, 0.0};  // of what is finite, and how many
  for (int j = threadIdx.x; j < sample.count; j += kThreads) {
    const double z = logit(j);
    largest = fmax(largest, z);
    if (isfinite(z)) sums = plus(sums, {z, 1.0});
  }
  largest = block_max(largest, scratch);
  sums = block_sum(sums, scratch);
  const double mean = sums.a / sums.b;
  Two squares{0.0, 0.0};
  for (int j = threadIdx.x; j < sample.count; j += kThreads) {
    const double z = logit(j);
    if (isfinite(z)) squares.a += (z - mean) * (z - mean);
  }
  squares = block_sum(squares, scratch);
  largest = fmax(largest, mean + spread * sqrt(squares.a / sums.b));
  return map.softcap != 0.0 ? fmin(largest, map.softcap) : largest;
}

__device__ inline float factor_of(const Call& call, std::int64_t token) {
  const double scale = has_options(call) ? 1.0 : call.scale;
  return static_cast<float>(scale * kLog2E / temperature_of(call, token));
}

__device__ inline void store_token_row(const Call& call, const Chunk& chunk, int row, float factor,
                                       float offset) {
  const std::int64_t target = call.states[chunk.first + row].target;
  chunk.tokens.factor[row] = factor;
  chunk.tokens.offset[row] = offset;
  chunk.tokens.target[row] = target < 0 ? -1 : static_cast<int>(target);
}

// The products of a token with its target and, where there is label smoothing, with the sum over
// all classes (null: 0), for all threads.
__device__ Two target_products(const __nv_bfloat16* a, const __nv_bfloat16* b,
                               const float* class_sum, int hidden, Two* scratch) {
  float dot = 0.0f;
  float smooth = 0.0f;
  for (int h = threadIdx.x * kUnit; h < hidden; h += kThreads * kUnit) {
    float x[kUnit];
    float w[kUnit];
    load_unit(a + h, x);
    load_unit(b + h, w);
    for (int i = 0; i < kUnit; ++i) dot = fmaf(x[i], w[i], dot);
    if (class_sum == nullptr) continue;
    for (int i = 0; i < kUnit; ++i) smooth = fmaf(x[i], class_sum[h + i], smooth);
  }
  return block_sum({dot, smooth}, scratch);
}

__global__ void __launch_bounds__(kThreads)
    offsets(const __grid_constant__ Call call, const __grid_constant__ Chunk chunk, const Rows x,
            const Matrix w, Sample sample) {
  __shared__ Two scratch[kWarps];
  const int row = blockIdx.x;
  const std::int64_t token = chunk.first + row;
  const std::int64_t target = call.states[token].target;
  const LogitMap map(call);
  const double spread = sqrt(2.0 * log(static_cast<double>(call.vocab)));
  const double sign = map.is_plain && call.scale < 0.0 ? -1.0 : 1.0;
  sample.product += std::int64_t{row} * sample.count;
  const double reference = sign * estimate(sample, map, sign, spread, scratch);
  const Smoothing& smoothing = chunk.smoothing;
  Two products{0.0, 0.0};
  if (target >= 0) {
    products = target_products(row_of(x, token), row_of(w, target), smoothing.class_sum,
                               chunk.hidden, scratch);
  }
  if (threadIdx.x != 0) return;
  const float factor = factor_of(call, token);
  double offset = reference * static_cast<double>(factor);
  if (target >= 0) {
    const double z = map.biased(products.a, target);
    const double logit = map.capped(z) * static_cast<double>(factor);
    call.states[token].stats.target = logit * kLn2;
    call.states[token].stats.target_slope = map.slope(z);
    if (smoothing.class_sum != nullptr) {
      // No softcap: the sum of the logits is the logit of the sum.
      const double sum = map.is_plain ? products.b : map.scale * products.b + *smoothing.bias_sum;
      call.states[token].stats.weighted = sum * static_cast<double>(factor) * kLn2;
    }
    offset = fmax(offset, logit);
  }
  const float rounded = static_cast<float>(offset);
  store_token_row(call, chunk, row, factor, isfinite(rounded) ? rounded : 0.0f);
}

__global__ void known_offsets(const __grid_constant__ Call call,
                              const __grid_constant__ Chunk chunk, float2* gradient) {
  const int row = blockIdx.x * blockDim.x + threadIdx.x;
  if (row >= chunk.rows) return;
  const std::int64_t token = chunk.first + row;
  const RowGradient& known = call.gradients[token].row;
  double offset = call.states[token].stats.max * kLog2E;
  if (gradient != nullptr) {
    gradient[row] = make_float2(static_cast<float>(known.a - known.h * known.k),
                                static_cast<float>(-known.h * kLn2));
  } else {
    const double size = fabs(known.a);
    if (size > 0.0 && isfinite(size)) offset -= log2(size);
  }
  store_token_row(call, chunk, row, factor_of(call, token), static_cast<float>(offset));
}

constexpr int kFinishRows = 32;
constexpr int kFinishSlices = 32;

// The parts of some tiles.
template <typename Part>
struct PartSum;
template <>
struct PartSum<TilePart> {
  double sum = 0.0;
  float largest = kNoLogit;

  __device__ void add(const TilePart& part) {
    sum += part.sum;
    largest = fmaxf(largest, part.largest);
  }
  __device__ void add(const PartSum& other) {
    sum += other.sum;
    largest = fmaxf(largest, other.largest);
  }
  __device__ float exponent(float, float) const { return largest; }
  __device__ void store(double, RowStats&) const {}
};
template <>
struct PartSum<OptionsPart> {
  double sum = 0.0;
  double entropy = 0.0;
  float largest = kNoLogit;  // logit
  int col = -1;

  __device__ void add(double more, double more_entropy, float other, int other_col) {
    sum += more;
    entropy += more_entropy;
    if (other_col < 0) return;
    if (col < 0 || other > largest || (other == largest && other_col < col)) {
      largest = other;
      col = other_col;
    }
  }
  __device__ void add(const OptionsPart& part) {
    add(part.sum, part.entropy, part.best, part.best_col);
  }
  __device__ void add(const PartSum& other) {
    add(other.sum, other.entropy, other.largest, other.col);
  }
  // Minus infinity throughout: no offset is better than another.
  __device__ float exponent(float factor, float offset) const {
    return col < 0 ? 0.0f : fmaf(largest, factor, -offset);
  }
  __device__ void store(double factor, RowStats& stats) const {
    stats.entropy = entropy * kLn2;
    stats.best_index = col;
    if (col >= 0) stats.best = static_cast<double>(largest) * factor * kLn2;
  }
};

template <typename Part>
__global__ void __launch_bounds__(kFinishRows* kFinishSlices)
    finish_rows(const __grid_constant__ Call call, const __grid_constant__ Chunk chunk,
                const Part* parts, int num_tiles, std::int64_t part_stride, int* groups,
                bool is_last) {
  __shared__ alignas(8) char scratch[sizeof(PartSum<Part>) * kFinishSlices * kFinishRows];
  auto* const sums = reinterpret_cast<PartSum<Part>*>(scratch);
  const int lane = threadIdx.x % kFinishRows;
  const int slice = threadIdx.x / kFinishRows;
  const int row = blockIdx.x * kFinishRows + lane;
  // A group begins on a multiple of the block's rows.
  if (is_last && groups[blockIdx.x * kFinishRows / kGroupRows] == 0) return;
  PartSum<Part> sum;
  if (row < chunk.rows) {
#pragma unroll 4
    for (int tile = slice; tile < num_tiles; tile += kFinishSlices) {
      sum.add(parts[tile * part_stride + row]);
    }
  }
  sums[threadIdx.x] = sum;
  __syncthreads();
  if (slice != 0 || row >= chunk.rows) return;
  for (int s = 1; s < kFinishSlices; ++s) sum.add(sums[s * kFinishRows + lane]);
  RowStats& stats = call.states[chunk.first + row].stats;
  const float offset = chunk.tokens.offset[row];
  const float factor = chunk.tokens.factor[row];
  // An infinite logit has no softmax; a NaN shows in the sum already.
  if (sum.largest > -kNoLogit) sum.sum = quiet_nan();
  const float largest = sum.exponent(factor, offset);
  const float safe = call.wants_entropy ? kSafeForEntropy : kSafe;
  if (!is_last && fabsf(largest) > safe && sum.sum == sum.sum) {
    chunk.tokens.offset[row] = offset + largest;
    groups[row / kGroupRows] = 1;
  }
  stats.max = static_cast<double>(offset) * kLn2;
  stats.others = sum.sum;
  sum.store(factor, stats);
}

}  // namespace

void launch_offsets(const Call& call, const Chunk& chunk, const Rows& x, const Matrix& w,
                    const float* sample, int sample_cols, std::int64_t sample_step,
                    cudaStream_t stream) {
  offsets<<<chunk.rows, kThreads, 0, stream>>>(call, chunk, x, w,
                                               Sample{sample, sample_cols, sample_step});
}

void launch_known_offsets(const Call& call, const Chunk& chunk, float2* gradient,
                          cudaStream_t stream) {
  known_offsets<<<(chunk.rows + kThreads - 1) / kThreads, kThreads, 0, stream>>>(call, chunk,
                                                                                 gradient);
}

void launch_finish_rows(const Call& call, const Chunk& chunk, const void* parts, int num_tiles,
                        std::int64_t part_stride, int* groups, bool is_last, cudaStream_t stream) {
  static_assert(kGroupRows % kFinishRows == 0, "a block looks at one group");
  const int blocks = (chunk.rows + kFinishRows - 1) / kFinishRows;
  const auto launch = [&](auto* kernel, const auto* of_tiles) {
    kernel<<<blocks, kFinishRows * kFinishSlices, 0, stream>>>(call, chunk, of_tiles, num_tiles,
                                                               part_stride, groups, is_last);
  };
  if (has_options(call)) {
    launch(finish_rows<OptionsPart>, static_cast<const OptionsPart*>(parts));
  } else {
    launch(finish_rows<TilePart>, static_cast<const TilePart*>(parts));
  }
}

}  // namespace flce::cuda::hopper
