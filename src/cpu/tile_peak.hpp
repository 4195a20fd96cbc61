// SPDX-License-Identifier: Apache-2.0
// What the multiply-add units do at best: s = s * x + y in registers alone, as a template over the
// instruction set. The yardstick of calibrate.cpp; included by tile_impl.hpp only.
#pragma once

#include "cpu/vec.hpp"

namespace flce::cpu {

template <typename Isa, typename Acc>
struct PeakTile : Ops<Isa, Acc> {
  using O = Ops<Isa, Acc>;
  using typename O::Vec;
  // Enough independent sums to hide the latency (two units times four cycles, or three plus three
  // where a product and a sum are two instructions), few enough for 16 registers.
  static constexpr int kSums = 12;
  static constexpr std::int64_t kFlopsPerRound = 2 * kSums * O::kLanes * Isa::kTerms;

  // Every sum falls from 2 or 3 to 1, so no operand is ever denormal. (A sum that began at 1 would
  // be a constant, and the compiler would see it.)
  static Acc fma_burst(std::int64_t rounds) {
    Vec sums[kSums];
    for (int i = 0; i < kSums; ++i) sums[i] = O::splat(Acc(2) + Acc(i) / kSums);
    const Vec x = O::splat(Acc(0.5));
    const Vec y = O::splat(Acc(0.5));
    for (std::int64_t r = 0; r < rounds; ++r) {
#pragma GCC unroll 16
      for (int i = 0; i < kSums; ++i) {
        if constexpr (Isa::kTerms == 1) {
          sums[i] = sums[i] * x + y;
        } else {
          sums[i] = Isa::multiply_add(x, y, sums[i]);
        }
      }
    }
    for (int i = 1; i < kSums; ++i) sums[0] += sums[i];
    return O::sum(sums[0]);
  }
};

}  // namespace flce::cpu
