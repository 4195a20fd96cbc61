// SPDX-License-Identifier: Apache-2.0
// The table of one instruction set, from the tile templates. Included once by each tile_<isa>.cpp,
// which is compiled with that instruction set's flags.
#pragma once

#include "cpu/tile_gradient.hpp"
#include "cpu/tile_loss.hpp"
#include "cpu/tile_multiply.hpp"
#include "cpu/tile_pack.hpp"
#include "cpu/tile_peak.hpp"

namespace flce::cpu {

// What the products of most instruction sets are: one term a word, in the accumulation type.
struct PlainProducts {
  static constexpr int kTerms = 1;
  template <typename Vec>
  [[gnu::always_inline]] static inline Vec multiply_add(Vec row, Vec columns, Vec sum) {
    return row * columns + sum;
  }
};

#if defined(__FMA__)
// The same with the instruction written out: GCC 12 takes forms of it that overwrite a factor
// instead of the sum, and then runs out of registers. "v" is any vector register of the file's
// instruction set.
struct FmaProducts {
  static constexpr int kTerms = 1;
  template <typename Vec>
  [[gnu::always_inline]] static inline Vec multiply_add(Vec row, Vec columns, Vec sum) {
    if constexpr (sizeof(sum[0]) == 4) {
      asm("vfmadd231ps %2, %1, %0" : "+v"(sum) : "v"(row), "v"(columns));
    } else {
      asm("vfmadd231pd %2, %1, %0" : "+v"(sum) : "v"(row), "v"(columns));
    }
    return sum;
  }
};
#endif

template <typename Isa, typename Acc>
constexpr Kernels<Acc> make_kernels() {
  using M = MultiplyTile<Isa, Acc>;
  using P = PackTile<Isa, Acc>;
  static_assert(kRowPad % M::kLeft == 0 && kTileTokens % M::kLeft == 0);
  static_assert(kTileVocab % M::kLeft == 0 && M::kLeft % 4 == 0);
  static_assert(kTileVocab % M::kRight == 0 && kColPad % M::kLanes == 0);
  return {Isa::kName,
          M::kLeft,
          M::kRight,
          Isa::kTerms,
          &P::pack_left,
          &P::pack_right,
          &P::pack_right_cols,
          &M::multiply,
          &LossTile<Isa, Acc>::tile_row,
          &GradientTile<Isa, Acc>::pack_by_token,
          &GradientTile<Isa, Acc>::pack_by_vocab,
          &PeakTile<Isa, Acc>::fma_burst,
          PeakTile<Isa, Acc>::kFlopsPerRound};
}

}  // namespace flce::cpu
