// SPDX-License-Identifier: Apache-2.0
// The passes over a row of logits: from what a product made to u, the statistics of a thread's
// columns and their sum over a block, and the gradient of a column.
#pragma once

#include "kernels/portable/element.cuh"
#include "math/row.hpp"

namespace flce::cuda {

constexpr int kWarp = 32;
constexpr int kMaxWarps = 32;

// Those in double are called, not inlined: they are long, and speed is no aim of f64.
__device__ inline float exp_of(float x) { return expf(x); }
static __device__ __noinline__ double exp_of(double x) { return exp(x); }
__device__ inline float tanh_of(float x) { return tanhf(x); }
static __device__ __noinline__ double tanh_of(double x) { return tanh(x); }

template <typename Acc>
constexpr __host__ __device__ Acc lowest() {
  return sizeof(Acc) == 4 ? static_cast<Acc>(-3.402823466e+38) : static_cast<Acc>(-1.797693134862315708e+308);
}
template <typename Acc>
__device__ inline Acc minus_infinity() {
  return -static_cast<Acc>(__int_as_float(0x7f800000));
}

// z (a product's result, scale included) -> u.
template <typename Acc, bool kFull>
struct LogitMap {
  const Acc* bias = nullptr;
  Acc softcap = 0;
  Acc inverse_temperature = 1;

  __device__ Acc with_bias(Acc z, std::int64_t col) const {
    return bias != nullptr ? z + bias[col] : z;
  }
  __device__ Acc u(Acc z) const {
    if (kFull && softcap != 0) z = softcap * tanh_of(z / softcap);
    return z * inverse_temperature;
  }
  // 1 - tanh^2, without cancellation where the tanh is near 1.
  __device__ Acc slope(Acc z) const {
    if (!kFull || softcap == 0) return 1;
    const Acc e = exp_of(Acc(-2) * fabs(z / softcap));
    const Acc sum = 1 + e;
    return 4 * e / (sum * sum);
  }
};

template <typename Acc, bool kFull>
__device__ inline LogitMap<Acc, kFull> map_of(const Call& call, double temperature) {
  LogitMap<Acc, kFull> map;
  map.bias = static_cast<const Acc*>(call.bias);
  map.softcap = static_cast<Acc>(call.softcap);
  map.inverse_temperature = static_cast<Acc>(1.0 / temperature);
  return map;
}

// The statistics of one thread's columns. Sums are relative to `max`, which rises as columns come.
template <typename Acc, bool kFull>
struct ColumnStats {
  Acc max = lowest<Acc>();
  Acc others = 0;
  Acc entropy = 0;
  Acc weighted = 0;
  Acc target = 0;
  Acc target_slope = 0;
  Acc best = minus_infinity<Acc>();
  std::int64_t best_index = -1;

  __device__ void raise(Acc to) {
    if (!(to > max)) return;
    const Acc d = max - to;
    if (others != 0) {
      if (kFull) entropy = (entropy + others * d) * exp_of(d);
      others *= exp_of(d);
    }
    max = to;
  }
  // Columns [col, col + count) with these u; `target_col` is the target's column.
  template <int kCount>
  __device__ void add(const Acc (&u)[kCount], int count, std::int64_t col, std::int64_t target_col,
                      const Acc* weights, bool wants_best) {
    Acc largest = u[0];
#pragma unroll
    for (int i = 1; i < kCount; ++i) {
      if (i < count && u[i] > largest) largest = u[i];
    }
    raise(largest);
    Acc sum = 0;
#pragma unroll
    for (int i = 0; i < kCount; ++i) {
      if (i >= count) continue;
      const bool is_target = col + i == target_col;
      const Acc d = u[i] - max;
      const Acc e = is_target ? Acc(0) : exp_of(d);
      sum += e;
      if (is_target) target = u[i];
      if (!kFull) continue;
      if (e != 0) entropy += e * d;
      if (weights != nullptr) {
        weighted += weights[col + i] * u[i];
      } else {
        weighted += u[i];
      }
      if (wants_best && u[i] > best) {
        best = u[i];
        best_index = col + i;
      }
    }
    others += sum;
  }
};

// Sums the statistics of the lanes of a warp; every lane gets the same. A lane without columns
// gives RowStats{}. Without kFull the fields beyond max, others and target are left alone.
template <bool kFull>
__device__ inline RowStats merge_lanes(RowStats s) {
  double max = s.max;
  for (int mask = kWarp / 2; mask > 0; mask /= 2) {
    const double other = from_lane_xor(max, mask);
    if (other > max) max = other;
  }
  const double d = s.max - max;
  if (kFull) {
    const double moved = s.others == 0.0 ? s.entropy : s.entropy + s.others * d;
    s.entropy = rescale(moved, d);
  }
  s.others = rescale(s.others, d);
  s.max = max;
  for (int mask = kWarp / 2; mask > 0; mask /= 2) {
    s.others += from_lane_xor(s.others, mask);
    s.target += from_lane_xor(s.target, mask);
    if (!kFull) continue;
    s.entropy += from_lane_xor(s.entropy, mask);
    s.weighted += from_lane_xor(s.weighted, mask);
    s.target_slope += from_lane_xor(s.target_slope, mask);
    const double best = from_lane_xor(s.best, mask);
    const std::int64_t index = from_lane_xor(static_cast<long long>(s.best_index), mask);
    const bool is_better = best > s.best || (best == s.best && index < s.best_index);
    if (index >= 0 && (s.best_index < 0 || is_better)) {
      s.best = best;
      s.best_index = index;
    }
  }
  return s;
}

// The same of one thread's columns each. Exponentials and, of the plain pass, sums over the lanes
// are in the accumulation type: a warp's share of a row is 32 numbers of a thread's each.
template <typename Acc, bool kFull>
__device__ inline RowStats merge_columns(ColumnStats<Acc, kFull> c) {
  Acc max = c.max;
  for (int mask = kWarp / 2; mask > 0; mask /= 2) {
    const Acc other = from_lane_xor(max, mask);
    if (other > max) max = other;
  }
  c.raise(max);
  RowStats s;
  s.max = max;
  if (!kFull) {
    for (int mask = kWarp / 2; mask > 0; mask /= 2) {
      c.others += from_lane_xor(c.others, mask);
      c.target += from_lane_xor(c.target, mask);
    }
    s.others = c.others;
    s.target = c.target;
    return s;
  }
  s.others = c.others;
  s.target = c.target;
  s.entropy = c.entropy;
  s.weighted = c.weighted;
  s.target_slope = c.target_slope;
  s.best = c.best;
  s.best_index = c.best_index;
  return merge_lanes<kFull>(s);
}

// Shared memory of a block's sum.
struct StatsScratch {
  RowStats warp[kMaxWarps];
};

// The sum over the block, valid in every lane of warp 0. Ends with all threads past one barrier.
template <typename Acc, bool kFull>
__device__ inline RowStats merge_block(const ColumnStats<Acc, kFull>& c, StatsScratch& scratch) {
  const RowStats mine = merge_columns(c);
  const int warp = static_cast<int>(threadIdx.x) / kWarp;
  const int lane = static_cast<int>(threadIdx.x) % kWarp;
  const int num_warps = static_cast<int>(blockDim.x) / kWarp;
  if (lane == 0) {
    if (kFull) {
      scratch.warp[warp] = mine;
    } else {
      scratch.warp[warp].max = mine.max;
      scratch.warp[warp].others = mine.others;
      scratch.warp[warp].target = mine.target;
    }
  }
  __syncthreads();
  if (warp != 0) return RowStats{};
  return merge_lanes<kFull>(lane < num_warps ? scratch.warp[lane] : RowStats{});
}

// A token's coefficients in the accumulation type.
template <typename Acc>
struct Coefficients {
  Acc max, a, q, h, k, t;
  std::int64_t target;

  __device__ explicit Coefficients(const TokenGradient& g)
      : max(static_cast<Acc>(g.max)),
        a(static_cast<Acc>(g.row.a)),
        q(static_cast<Acc>(g.row.q)),
        h(static_cast<Acc>(g.row.h)),
        k(static_cast<Acc>(g.row.k)),
        t(static_cast<Acc>(g.row.t)),
        target(g.target) {}

  // d loss / d z of column `col`, whose logit is z (with bias).
  template <bool kFull>
  __device__ Acc gradient(Acc z, std::int64_t col, const LogitMap<Acc, kFull>& map,
                          const Acc* weights) const {
    if (col == target) return t;
    const Acc d = map.u(z) - max;
    const Acc e = exp_of(d);
    Acc g = a * e;
    if (!kFull) return g;
    if (q != 0) g -= weights != nullptr ? q * weights[col] : q;
    if (h != 0 && e != 0) g -= h * e * (d + k);
    return g * map.slope(z);
  }
};

// True where the plain passes do: no softcap, no smoothing, nothing beyond the loss and the
// log-sum-exp.
inline bool needs_full(const Call& call) {
  return call.softcap != 0.0 || call.label_smoothing != 0.0 || call.wants_entropy ||
         call.wants_best || call.grad_entropy.dtype != Dtype::kNone;
}

}  // namespace flce::cuda
