// SPDX-License-Identifier: Apache-2.0
// The peak of the multiply-add units and the bandwidth of the memory, all threads at once. Best of
// several bursts: what disturbs a burst only makes it slower. Called through flce/calibrate.hpp;
// neither planning nor running depends on it.
#include "flce/calibrate.hpp"

#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <vector>

#include "core/check.hpp"
#include "core/int_math.hpp"
#include "cpu/element.hpp"
#include "cpu/kernels.hpp"
#include "cpu/threads.hpp"
#include "flce/flce.hpp"

namespace flce::cpu {
namespace {

using Clock = std::chrono::steady_clock;

constexpr double kBurstSeconds = 0.02;
constexpr int kBursts = 9;
constexpr int kPasses = 5;  // over the buffer

template <typename Work>
double seconds_of(Work&& work) {
  const Clock::time_point start = Clock::now();
  work();
  return std::chrono::duration<double>(Clock::now() - start).count();
}

// Keeps a result, so that the compiler cannot leave its computation out.
template <typename T>
void keep(T value) {
  volatile T sink = value;
  static_cast<void>(sink);
}

// One burst; `rounds` grows until a burst takes long enough to be measured.
template <typename Acc>
double burst_flops(const Kernels<Acc>& kernel, int lanes) {
  for (std::int64_t rounds = 1 << 16;; rounds *= 2) {
    const double seconds = seconds_of([&] {
      parallel_for(lanes, lanes, [&](std::int64_t, int) { keep(kernel.fma_burst(rounds)); });
    });
    if (seconds < kBurstSeconds / 2) continue;
    const auto flops = static_cast<double>(rounds * kernel.flops_per_round) * lanes;
    return flops / seconds;
  }
}

double burst_flops(Dtype dtype, int lanes) {
  Problem problem;
  problem.dtype = dtype;
  return visit_accumulation(dtype, [&]<typename Acc>(Type<Acc>) {
    return burst_flops<Acc>(kernels<Acc>(problem), lanes);
  });
}

// Much larger than the caches, so that they serve little of it.
std::int64_t buffer_bytes() {
  constexpr std::int64_t kLeast = std::int64_t{128} << 20;
  constexpr std::int64_t kMost = std::int64_t{1} << 30;
#if defined(_SC_LEVEL3_CACHE_SIZE)
  const auto cache = static_cast<std::int64_t>(::sysconf(_SC_LEVEL3_CACHE_SIZE));
#else
  const std::int64_t cache = 0;
#endif
  return std::clamp(4 * cache, kLeast, kMost);
}

// Sums whole vectors; four at once hide the latency of the sum.
std::uint64_t sum_of(const std::uint64_t* words, std::int64_t count) {
  typedef std::uint64_t Vec __attribute__((vector_size(16)));
  constexpr std::int64_t kStep = 4 * 2;
  const auto* from = reinterpret_cast<const Vec*>(words);
  Vec sums[4] = {};
  for (std::int64_t i = 0; i + kStep <= count; i += kStep, from += 4) {
#pragma GCC unroll 4
    for (int k = 0; k < 4; ++k) sums[k] += from[k];
  }
  sums[0] += sums[1] + sums[2] + sums[3];
  return sums[0][0] + sums[0][1];
}

double read_bandwidth(int lanes) {
  constexpr std::int64_t kSlice = 1 << 20;
  const std::int64_t bytes = round_up(buffer_bytes(), kSlice);
  Workspace memory(static_cast<std::uint64_t>(bytes));
  auto* words = reinterpret_cast<std::uint64_t*>(memory.span().data());
  constexpr std::int64_t kWords = kSlice / 8;
  const std::int64_t slices = bytes / kSlice;
  parallel_for(slices, lanes, [&](std::int64_t i, int) {
    std::fill_n(words + i * kWords, kWords, static_cast<std::uint64_t>(i));
  });
  double best = 0.0;
  for (int pass = 0; pass < kPasses; ++pass) {
    const double seconds = seconds_of([&] {
      parallel_for(slices, lanes,
                   [&](std::int64_t i, int) { keep(sum_of(words + i * kWords, kWords)); });
    });
    best = std::max(best, static_cast<double>(bytes) / seconds);
  }
  return best;
}

int lanes_of(Dtype dtype, int num_threads) {
  require(dtype >= Dtype::kF64 && dtype <= Dtype::kF16,
          "measuring in {} makes no sense; f64, f32, bf16 and f16 are computed with",
          name_of(dtype));
  require(num_threads >= 0 && num_threads <= 1024,
          "{} threads: give 1 to 1024, or 0 for as many as run will use", num_threads);
  return num_threads > 0 ? num_threads : available_threads();
}

}  // namespace
}  // namespace flce::cpu

namespace flce {

double measure_matmul_flops(Dtype dtype, int num_threads) {
  return cpu::burst_flops(dtype, cpu::lanes_of(dtype, num_threads));
}

CpuFigures measure_cpu(Dtype dtype, int num_threads) {
  const int lanes = cpu::lanes_of(dtype, num_threads);
  CpuFigures figures;
  figures.bandwidth_bytes = cpu::read_bandwidth(lanes);
  for (int i = 0; i < cpu::kBursts; ++i) {
    figures.matmul_flops = std::max(figures.matmul_flops, cpu::burst_flops(dtype, lanes));
  }
  return figures;
}

}  // namespace flce
