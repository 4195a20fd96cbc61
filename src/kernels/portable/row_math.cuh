// SPDX-License-Identifier: Apache-2.0
// From what a product made to u, the statistics of some columns and their sum over a block, and the
// gradient of a column.
#pragma once

#include "kernels/portable/element.cuh"
#include "math/row.hpp"

namespace flce::cuda {

constexpr int kWarp = 32;
// Columns that a thread handles at once: 16 bytes of f32 logits.
constexpr int kQuad = 4;

constexpr double kLog2E = 1.4426950408889634074;
constexpr double kLn2 = 0.69314718055994530942;

// 2^x in one instruction (2 units in the last place), 0 below the smallest normal number.
__device__ inline float exp2_of(float x) {
  float y;
  asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
  return y;
}
// Those in double are called, not inlined: they are long, and speed is no aim of f64.
static __device__ __noinline__ double exp2_of(double x) { return exp2(x); }
__device__ inline float exp_of(float x) { return expf(x); }
__device__ inline double exp_of(double x) { return exp2_of(x * kLog2E); }
__device__ inline float tanh_of(float x) { return tanhf(x); }
static __device__ __noinline__ double tanh_of(double x) { return tanh(x); }

// NaN loses here; its exponential shows it.
__device__ inline float larger_of(float a, float b) { return fmaxf(a, b); }
__device__ inline double larger_of(double a, double b) { return fmax(a, b); }

// A sum in pairs, then pairs of pairs, ...
template <int kCount, typename Acc>
__device__ inline Acc sum_of(const Acc* v) {
  if constexpr (kCount == 1) {
    return v[0];
  } else {
    return sum_of<kCount / 2>(v) + sum_of<kCount - kCount / 2>(v + kCount / 2);
  }
}

template <typename Acc>
constexpr __host__ __device__ Acc lowest() {
  return sizeof(Acc) == 4 ? static_cast<Acc>(-3.402823466e+38)
                          : static_cast<Acc>(-1.797693134862315708e+308);
}
template <typename Acc>
__device__ inline Acc minus_infinity() {
  return -static_cast<Acc>(__int_as_float(0x7f800000));
}

// From z, which a product makes (scale included), to u = v / temperature, where v has bias and
// softcap, and to its exponential.
//
// Two ways. The plain one serves 16-bit problems without options: powers of two of v times a
// factor, one multiply-add and one instruction each, good to about 2^-21. The full one serves f32
// and f64 as well: e^(u - reference) as accurate as the type is. An "exponent" is in units of ln 2
// or of 1.
template <typename Acc, bool kFull>
struct LogitMap {
  static constexpr double kUnit = kFull ? 1.0 : kLn2;
  const Acc* bias = nullptr;
  Acc softcap = 0;
  Acc factor = 1;  // of v: 1 / temperature in units

  // With its bias.
  __device__ Acc biased(Acc z, int col) const {
    return kFull && bias != nullptr ? z + bias[col] : z;
  }
  __device__ Acc v(Acc biased_z) const {
    return kFull && softcap != 0 ? softcap * tanh_of(biased_z / softcap) : biased_z;
  }
  // 1 - tanh^2, without cancellation where the tanh is near 1.
  __device__ Acc slope(Acc biased_z) const {
    if (!kFull || softcap == 0) return 1;
    const Acc e = exp_of(Acc(-2) * fabs(biased_z / softcap));
    const Acc sum = 1 + e;
    return 4 * e / (sum * sum);
  }
  __device__ Acc exponent(Acc v, Acc reference) const {
    return kFull ? v * factor - reference : fma(v, factor, -reference);
  }
  __device__ static Acc power(Acc exponent) { return kFull ? exp_of(exponent) : exp2_of(exponent); }
};

template <typename Acc, bool kFull>
__device__ inline LogitMap<Acc, kFull> map_of(const Call& call, std::int64_t token) {
  LogitMap<Acc, kFull> map;
  if (kFull) map.bias = static_cast<const Acc*>(call.bias);
  if (kFull) map.softcap = static_cast<Acc>(call.softcap);
  const double inverse = call.temperatures.dtype == Dtype::kNone
                             ? call.inverse_temperature
                             : 1.0 / load_real(call.temperatures, token);
  map.factor = static_cast<Acc>(inverse / LogitMap<Acc, kFull>::kUnit);
  return map;
}

// Columns are counted in 32 bits here: a head has less than 2^31 rows.
//
// The statistics of some columns: of a thread, then summed over a warp, a block, a cluster. Sums
// are relative to the power of `reference`, the largest v times the factor as rounded: the row's
// RowStats say exactly that, so the rounding costs nothing.
template <typename Acc, bool kFull>
struct ColumnStats {
  Acc largest = lowest<Acc>();        // v
  Acc reference = lowest<Acc>() / 4;  // finite: no column, or minus infinity alone
  Acc others = 0;                     // sum over j != y of the powers of the exponents
  Acc target = 0;                     // v of the target
  Acc entropy = 0;                    // sum over j != y of the same times the exponent
  double weighted = 0;                // sum of w_j u_j, whose terms cancel
  Acc target_slope = 0;
  Acc best = minus_infinity<Acc>();  // u
  int best_index = -1;

  __device__ void rebase(Acc to) {
    const Acc d = reference - to;
    reference = to;
    if (others == 0) return;
    const Acc power = LogitMap<Acc, kFull>::power(d);
    if (kFull) entropy = (entropy + others * d) * power;
    others *= power;
  }

  // `most` is the largest v of some columns that are about to be added.
  __device__ void raise(Acc most, const LogitMap<Acc, kFull>& map) {
    if (most > largest) {
      largest = most;
      rebase(most * map.factor);
    }
  }

  // The plain way: columns that are not the target.
  template <int kCount>
  __device__ void add_others(const Acc (&v)[kCount], const LogitMap<Acc, kFull>& map) {
    Acc most = v[0];
#pragma unroll
    for (int i = 1; i < kCount; ++i) most = larger_of(most, v[i]);
    raise(most, map);
    Acc e[kCount];
#pragma unroll
    for (int i = 0; i < kCount; ++i) e[i] = map.power(map.exponent(v[i], reference));
    others += sum_of<kCount>(e);
  }
  // The first `count` of four columns from `col` on, the target among them or not; the other v are
  // ignored.
  __device__ void add(const Acc (&v)[kQuad], int count, int col, int target_col,
                      const LogitMap<Acc, kFull>& map, const Acc* weights, bool wants_best) {
    Acc most = v[0];
#pragma unroll
    for (int i = 1; i < kQuad; ++i) {  // unrolled: an array of registers has no run-time index
      if (i < count) most = larger_of(most, v[i]);
    }
    raise(most, map);
#pragma unroll
    for (int i = 0; i < kQuad; ++i) {
      if (i >= count) continue;
      Acc e = map.power(map.exponent(v[i], reference));
      if (col + i == target_col) {
        target = v[i];
        e = 0;
      }
      others += e;
      if (kFull) add_one(v[i], e, col + i, map, weights, wants_best);
    }
  }

 private:
  __device__ void add_one(Acc v, Acc e, int col, const LogitMap<Acc, kFull>& map,
                          const Acc* weights, bool wants_best) {
    const Acc u = v * map.factor;
    if (e != 0) entropy += e * (u - reference);
    // Classes of weight 0 may stand at minus infinity.
    if (weights == nullptr) {
      weighted += u;
    } else if (weights[col] != 0) {
      weighted += static_cast<double>(weights[col]) * u;
    }
    if (wants_best && u > best) {
      best = u;
      best_index = col;
    }
  }
};

// Sums the statistics of the first kLanes lanes of a warp (a power of two); each of them gets the
// same.
template <int kLanes, typename Acc, bool kFull>
__device__ inline ColumnStats<Acc, kFull> merge_lanes(ColumnStats<Acc, kFull> s) {
  Acc reference = s.reference;
  for (int mask = kLanes / 2; mask > 0; mask /= 2) {
    const Acc other = from_lane_xor(reference, mask);
    reference = other > reference ? other : reference;
  }
  s.rebase(reference);
  for (int mask = kLanes / 2; mask > 0; mask /= 2) {
    s.others += from_lane_xor(s.others, mask);
    s.target += from_lane_xor(s.target, mask);
    if (!kFull) continue;
    s.entropy += from_lane_xor(s.entropy, mask);
    s.weighted += from_lane_xor(s.weighted, mask);
    s.target_slope += from_lane_xor(s.target_slope, mask);
    const Acc best = from_lane_xor(s.best, mask);
    const int index = from_lane_xor(s.best_index, mask);
    const bool is_better = best > s.best || (best == s.best && index < s.best_index);
    if (index >= 0 && (s.best_index < 0 || is_better)) {
      s.best = best;
      s.best_index = index;
    }
  }
  return s;
}

// The sum over a block of kThreads, valid in the first warp. Ends with all threads past one
// barrier.
template <int kThreads, typename Acc, bool kFull>
__device__ inline ColumnStats<Acc, kFull> merge_block(const ColumnStats<Acc, kFull>& mine,
                                                      ColumnStats<Acc, kFull>* of_warp) {
  constexpr int kWarps = kThreads / kWarp;
  const ColumnStats<Acc, kFull> sum = merge_lanes<kWarp>(mine);
  if (threadIdx.x % kWarp == 0) of_warp[threadIdx.x / kWarp] = sum;
  __syncthreads();
  if (threadIdx.x >= kWarp) return sum;
  return merge_lanes<kWarps>(of_warp[threadIdx.x % kWarps]);
}

constexpr double kFarAhead = 300.0;

// In the units of math/row.hpp. The target's logit is the one that the exponentials see;
// `has_target`: it is in one of the columns.
template <typename Acc, bool kFull>
__device__ inline RowStats row_stats_of(const ColumnStats<Acc, kFull>& s,
                                        const LogitMap<Acc, kFull>& map, bool has_target) {
  constexpr double kUnit = LogitMap<Acc, kFull>::kUnit;
  RowStats row;
  row.max = static_cast<double>(s.reference) * kUnit;
  row.others = s.others;
  row.target = kFull ? static_cast<double>(s.target * map.factor)
                     : static_cast<double>(s.target) * static_cast<double>(map.factor) * kUnit;
  row.target_slope = kFull || !has_target ? static_cast<double>(s.target_slope) : 1.0;
  row.entropy = s.entropy;
  row.weighted = s.weighted;
  row.best = s.best;
  row.best_index = s.best_index;
  // The plain way leaves the target out of the maximum; e^(target - max) must stay finite.
  if (has_target && row.target > row.max + kFarAhead) {
    row.others = rescale(row.others, row.max - row.target);
    row.max = row.target;
  }
  return row;
}

// A token's coefficients in the accumulation type.
template <typename Acc>
struct Coefficients {
  Acc reference, a, q, h, k, t;
  int target;

  __device__ Coefficients() {}
  // `unit` is that of the map.
  __device__ Coefficients(const TokenGradient& g, double unit)
      : reference(static_cast<Acc>(g.max / unit)),  // what row_stats_of has multiplied
        a(static_cast<Acc>(g.row.a)),
        q(static_cast<Acc>(g.row.q)),
        h(static_cast<Acc>(g.row.h)),
        k(static_cast<Acc>(g.row.k)),
        t(static_cast<Acc>(g.row.t)),
        target(static_cast<int>(g.target)) {}

  // d loss / d z of a column that is not the target.
  template <bool kFull>
  __device__ Acc gradient(Acc z, int col, const LogitMap<Acc, kFull>& map,
                          const Acc* weights) const {
    const Acc biased = map.biased(z, col);
    const Acc exponent = map.exponent(map.v(biased), reference);
    const Acc e = map.power(exponent);
    Acc g = a * e;
    if (!kFull) return g;
    if (q != 0) g -= weights != nullptr ? q * weights[col] : q;
    if (h != 0 && e != 0) g -= h * e * (exponent + k);
    return g * map.slope(biased);
  }
};

// Whether the plain passes will not do: they serve 16-bit problems without bias, softcap or
// smoothing, and nothing beyond the loss and the log-sum-exp.
inline bool needs_full(const Call& call) {
  return call.dtype == Dtype::kF32 || call.is_f64 || call.bias != nullptr || call.softcap != 0.0 ||
         call.label_smoothing != 0.0 || call.wants_entropy || call.wants_best ||
         call.grad_entropy.dtype != Dtype::kNone;
}

}  // namespace flce::cuda
