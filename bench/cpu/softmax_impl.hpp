// SPDX-License-Identifier: Apache-2.0
// Compiled once for each instruction set, in a namespace of its own (FLCE_BENCH_ISA). The loops
// are plain and the compiler vectorises them (-fopenmp-simd), the reductions included.
#include <cstdint>
#include <cstring>
#include <type_traits>

#include "bf16.hpp"
#include "softmax.hpp"

namespace flce::bench::FLCE_BENCH_ISA {
namespace {

constexpr std::int64_t kBlock = 2048;  // 8 KiB of f32: stays in L1 between maximum and exponential
constexpr std::int64_t kMaxBlocks = kSoftmaxMaxCols / kBlock;

// exp(x) for x <= 0, about 1 ulp; 0 below -87.
inline float exp_of(float x) {
  constexpr float kMagic = 12582912.0F;  // 1.5 * 2^23: adding it rounds to an integer
  const float clamped = x < -87.0F ? -87.0F : x;
  const float shifted = clamped * 1.44269504F + kMagic;
  const float n = shifted - kMagic;
  const float r = (clamped - n * 0.693359375F) + n * 2.12194440e-4F;
  float p = 1.38892e-3F;
  p = p * r + 8.33333e-3F;
  p = p * r + 4.1666668e-2F;
  p = p * r + 1.6666667e-1F;
  p = p * r + 5.0e-1F;
  p = p * r + 1.0F;
  p = p * r + 1.0F;
  std::int32_t bits;
  std::memcpy(&bits, &shifted, sizeof bits);
  bits = static_cast<std::int32_t>(static_cast<std::uint32_t>(bits) << 23) + 0x3f800000;
  float power;
  std::memcpy(&power, &bits, sizeof power);
  return x < -87.0F ? 0.0F : p * power;
}

inline float load(const float* row, std::int64_t i) { return row[i]; }
inline float load(const std::uint16_t* row, std::int64_t i) { return bf16_to_f32(row[i]); }
inline void store(float* row, std::int64_t i, float value) { row[i] = value; }
inline void store(std::uint16_t* row, std::int64_t i, float value) { row[i] = f32_to_bf16(value); }

struct BlockSums {
  float max;
  float sum;  // of exp(logit - max)
};

// Logits -> exponentials relative to the block's maximum, in place.
template <typename T>
BlockSums exponentiate(T* row, std::int64_t cols) {
  float max = load(row, 0);
#pragma omp simd reduction(max : max)
  for (std::int64_t i = 0; i < cols; ++i) {
    const float value = load(row, i);
    max = max < value ? value : max;
  }
  float sum = 0.0F;
#pragma omp simd reduction(+ : sum)
  for (std::int64_t i = 0; i < cols; ++i) {
    const float e = exp_of(load(row, i) - max);
    sum += e;
    store(row, i, e);
  }
  return {max, sum};
}

// Exponentials -> gradient. bf16 over f32 goes through a block of its own: the row is overwritten
// from its start, behind what is still to be read.
template <typename T, typename G>
void scale_block(const T* from, G* to, std::int64_t cols, float factor) {
  if constexpr (std::is_same_v<T, G>) {
#pragma omp simd
    for (std::int64_t i = 0; i < cols; ++i) store(to, i, load(from, i) * factor);
  } else {
    alignas(64) G block[kBlock];
#pragma omp simd
    for (std::int64_t i = 0; i < cols; ++i) store(block, i, load(from, i) * factor);
    std::memcpy(to, block, static_cast<std::size_t>(cols) * sizeof(G));
  }
}

inline float log_of(float x) { return __builtin_logf(x); }

template <typename T, typename G>
float softmax_row(const SoftmaxRow& args) {
  T* const row = static_cast<T*>(args.row);
  G* const gradient = static_cast<G*>(args.row);
  BlockSums blocks[kMaxBlocks];
  const float target_logit = load(row, args.target);
  const std::int64_t num_blocks = (args.cols + kBlock - 1) / kBlock;
  float max = load(row, 0);
  for (std::int64_t b = 0; b < num_blocks; ++b) {
    const std::int64_t first = b * kBlock;
    const std::int64_t cols = args.cols - first < kBlock ? args.cols - first : kBlock;
    blocks[b] = exponentiate(row + first, cols);
    max = max < blocks[b].max ? blocks[b].max : max;
  }
  float sum = 0.0F;
  for (std::int64_t b = 0; b < num_blocks; ++b) sum += blocks[b].sum * exp_of(blocks[b].max - max);
  float target_exponential = 0.0F;
  for (std::int64_t b = 0; b < num_blocks; ++b) {
    const std::int64_t first = b * kBlock;
    const std::int64_t cols = args.cols - first < kBlock ? args.cols - first : kBlock;
    const float factor = exp_of(blocks[b].max - max) * args.scale / sum;
    if (args.target / kBlock == b) target_exponential = load(row, args.target) * factor;
    scale_block(row + first, gradient + first, cols, factor);
  }
  store(gradient, args.target, target_exponential - args.scale);
  return max + log_of(sum) - target_logit;
}

}  // namespace

extern const SoftmaxTable kTable;
const SoftmaxTable kTable = {FLCE_BENCH_ISA_NAME, softmax_row<float, float>,
                             softmax_row<float, std::uint16_t>,
                             softmax_row<std::uint16_t, std::uint16_t>};

}  // namespace flce::bench::FLCE_BENCH_ISA
