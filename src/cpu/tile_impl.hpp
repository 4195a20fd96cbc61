// SPDX-License-Identifier: Apache-2.0
// The table of one instruction set, from the three tile templates. Included once by each
// tile_<isa>.cpp, which is compiled with that instruction set's flags.
#pragma once

#include "cpu/tile_gradient.hpp"
#include "cpu/tile_loss.hpp"
#include "cpu/tile_multiply.hpp"
#include "cpu/tile_peak.hpp"

namespace flce::cpu {

template <typename Isa, typename Acc>
constexpr Kernels<Acc> make_kernels() {
  using M = MultiplyTile<Isa, Acc>;
  static_assert(kRowPad % M::kLeft == 0 && kTileTokens % M::kLeft == 0);
  static_assert(kColPad % M::kRight == 0 && kTileVocab % M::kRight == 0);
  static_assert(kTileVocab % M::kLeft == 0);
  return {Isa::kName,
          M::kLeft,
          M::kRight,
          &M::pack_rows,
          &M::pack_cols,
          &M::multiply,
          &LossTile<Isa, Acc>::tile_row,
          &GradientTile<Isa, Acc>::pack_by_token,
          &GradientTile<Isa, Acc>::pack_by_vocab,
          &PeakTile<Isa, Acc>::fma_burst,
          PeakTile<Isa, Acc>::kFlopsPerRound};
}

}  // namespace flce::cpu
