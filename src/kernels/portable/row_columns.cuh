// SPDX-License-Identifier: Apache-2.0
// The passes over the columns of a row, four at a time, 16 bytes of f32: loads, statistics,
// gradients, stores.
#pragma once

#include <type_traits>

#include "kernels/portable/row_math.cuh"

namespace flce::cuda {

// Four gradients, rounded to nearest even, as one access.
template <typename T>
struct alignas(kQuad * sizeof(T)) Quad {
  T value[kQuad];
};
// Two of them as one word, in one instruction.
template <typename T>
__device__ inline unsigned rounded_pair(float low, float high) {
  unsigned bits;
  if constexpr (std::is_same_v<T, BF16>) {
    asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(bits) : "f"(high), "f"(low));
  } else {
    asm("cvt.rn.f16x2.f32 %0, %1, %2;" : "=r"(bits) : "f"(high), "f"(low));
  }
  return bits;
}
template <typename T>
__device__ inline Quad<T> rounded(const AccOf<T> (&g)[kQuad]) {
  Quad<T> to;
  if constexpr (sizeof(T) == 2) {
    const uint2 bits = make_uint2(rounded_pair<T>(g[0], g[1]), rounded_pair<T>(g[2], g[3]));
    memcpy(&to, &bits, sizeof to);
  } else {
#pragma unroll
    for (int i = 0; i < kQuad; ++i) to.value[i] = round_to<T>(g[i]);
  }
  return to;
}

// Four logits from `row + j` on: all of them, or those before `end`.
template <typename Acc>
__device__ inline void load_quad(const Acc* row, int j, Acc (&z)[kQuad]) {
#pragma unroll
  for (int p = 0; p < kQuad / Piece<Acc>::kCount; ++p) {
    const Piece<Acc> piece = reinterpret_cast<const Piece<Acc>*>(row + j)[p];
#pragma unroll
    for (int i = 0; i < Piece<Acc>::kCount; ++i) z[p * Piece<Acc>::kCount + i] = piece.value[i];
  }
}
template <typename Acc>
__device__ inline void load_some(const Acc* row, int j, int end, Acc (&z)[kQuad]) {
#pragma unroll
  for (int i = 0; i < kQuad; ++i) z[i] = j + i < end ? row[j + i] : Acc(0);
}

// Adds the first `count` of four columns from column `col` of the head on.
template <typename Acc, bool kFull>
__device__ inline void add_some(const Call& call, Acc (&z)[kQuad], int count, int col,
                                int target_col, const LogitMap<Acc, kFull>& map,
                                ColumnStats<Acc, kFull>& stats) {
  if (kFull) {
#pragma unroll
    for (int i = 0; i < kQuad; ++i) {
      if (i >= count) continue;
      const Acc biased = map.biased(z[i], col + i);
      if (col + i == target_col) stats.target_slope = map.slope(biased);
      z[i] = map.v(biased);
    }
  }
  stats.add(z, count, col, target_col, map, static_cast<const Acc*>(call.class_weight),
            call.wants_best);
}

// Adds kQuads times four columns, which begin at column `col` and `step` apart.
template <int kQuads, typename Acc, bool kFull>
__device__ inline void add_quads(const Call& call, Acc (&z)[kQuads][kQuad], int col, int step,
                                 int target_col, const LogitMap<Acc, kFull>& map,
                                 ColumnStats<Acc, kFull>& stats) {
  if constexpr (kFull) {
#pragma unroll
    for (int q = 0; q < kQuads; ++q) {
      add_some(call, z[q], kQuad, col + q * step, target_col, map, stats);
    }
  } else {
    Acc others[kQuads * kQuad];
#pragma unroll
    for (int i = 0; i < kQuads * kQuad; ++i) others[i] = z[i / kQuad][i % kQuad];
    const unsigned ahead = static_cast<unsigned>(target_col) - static_cast<unsigned>(col);
    if (ahead < (kQuads - 1) * static_cast<unsigned>(step) + kQuad) {
#pragma unroll
      for (int i = 0; i < kQuads * kQuad; ++i) {  // selects: no run-time index
        const bool is_here = ahead == i / kQuad * static_cast<unsigned>(step) + i % kQuad;
        stats.target = is_here ? others[i] : stats.target;
        others[i] = is_here ? minus_infinity<Acc>() : others[i];
      }
    }
    stats.add_others(others, map);
  }
}

// Statistics of a thread's columns: four from `j` on, four behind kStep of them, and so on, before
// `end`; from[j] belongs to column first_col + j of the head. Several are loaded at once.
template <int kStep, typename Acc, bool kFull>
__device__ inline void sum_columns(const Call& call, const Acc* from, int j, int end, int first_col,
                                   int target_col, const LogitMap<Acc, kFull>& map,
                                   ColumnStats<Acc, kFull>& stats) {
  constexpr int kBatch = 4;
  for (; j + (kBatch - 1) * kStep + kQuad <= end; j += kBatch * kStep) {
    Acc z[kBatch][kQuad];
#pragma unroll
    for (int q = 0; q < kBatch; ++q) load_quad(from, j + q * kStep, z[q]);
    add_quads(call, z, first_col + j, kStep, target_col, map, stats);
  }
  for (; j + kQuad <= end; j += kStep) {
    Acc z[1][kQuad];
    load_quad(from, j, z[0]);
    add_quads(call, z, first_col + j, kStep, target_col, map, stats);
  }
  if (j >= end) return;
  Acc z[kQuad];
  load_some(from, j, end, z);
  add_some(call, z, end - j, first_col + j, target_col, map, stats);
}

// The gradients of four columns, or of the first `count`; without kTarget the target's is not
// looked for.
template <typename T, bool kAll, bool kTarget = true, bool kFull, typename Acc = AccOf<T>>
__device__ inline Quad<T> gradient_quad(const Call& call, const Acc (&z)[kQuad], int count, int col,
                                        const Coefficients<Acc>& c,
                                        const LogitMap<Acc, kFull>& map) {
  const auto* weights = static_cast<const Acc*>(call.class_weight);
  Acc g[kQuad];
#pragma unroll
  for (int i = 0; i < kQuad; ++i) {
    const bool is_there = kAll || i < count;  // bias and weights end with the row
    g[i] = is_there ? c.template gradient<kFull>(z[i], col + i, map, weights) : Acc(0);
  }
  const unsigned place = static_cast<unsigned>(c.target) - static_cast<unsigned>(col);
  if (kTarget && place < kQuad) {
#pragma unroll
    for (int i = 0; i < kQuad; ++i) {
      if (i == place) g[i] = c.t;
    }
  }
  return rounded<T>(g);
}

template <typename T>
__device__ inline void store_quad(T* row, int j, const Quad<T>& g) {
  *reinterpret_cast<Quad<T>*>(row + j) = g;
}
template <typename T>
__device__ inline void store_some(T* row, int j, int end, const Quad<T>& g) {
#pragma unroll
  for (int i = 0; i < kQuad; ++i) {
    if (j + i < end) row[j + i] = g.value[i];
  }
}

}  // namespace flce::cuda
