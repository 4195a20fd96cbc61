// SPDX-License-Identifier: Apache-2.0
// The sizes of a step by route hopper (docs/kernels/hopper.md), from the problem and its tiling
// alone: used by the booking (book_odds.cpp) and by the verbs (run/odds.cpp).
#pragma once

#include <cstdint>

#include "backend/backend.hpp"

namespace flce::cuda {

// Of a row's statistics in a tile: hopper::TilePart, hopper::OptionsPart.
inline constexpr std::int64_t kTilePartBytes = 8;
inline constexpr std::int64_t kOptionsPartBytes = 16;
// Vocabulary rows that a token's offset is guessed from.
inline constexpr std::int64_t kSampleCols = 256;

struct OddsSizes {
  std::int64_t chunk = 1;
  std::int64_t num_chunks = 1;
  std::int64_t slab = 1;            // columns of E that are held at once
  std::int64_t e_cols = 0;          // of a row of E, to whole lines; 0: E is not kept
  std::int64_t part_stride = 0;     // tokens, to whole lines
  std::int64_t num_tiles = 0;       // of a row of the whole vocabulary
  std::int64_t part_bytes = 0;      // of a row's statistics in a tile
  std::int64_t sample_cols = 0;     // of the logits that offsets are guessed from
  std::int64_t smoothing_rows = 0;  // of E and of scaled hidden states, for label smoothing
  std::int64_t sum_rows = 0;        // of grad_weight, that wait for their targets' terms
  int hidden_parts = 1;             // of the sums of grad_hidden, for few tokens
  std::int64_t hidden_parts_bytes = 0;
  bool sums_grad_hidden = false;  // in f32, over slabs
  bool sums_grad_weight = false;  // bf16, in f32, over chunks
  bool has_f32_weight = false;
  bool has_options = false;  // as hopper::has_options of the call
  bool has_entropy_gradient = false;
};

OddsSizes odds_sizes_of(const Problem& problem, const Tiling& tiling, const Kept& kept);

void book_odds(const Problem& problem, const Tiling& tiling, const Kept& kept, Ledger& ledger);

// The slab of `recompute` for so many tokens: within the room the one whose tiles leave the fewest
// multiprocessors without work.
std::int64_t odds_slab(const Problem& problem, std::int64_t tokens);

}  // namespace flce::cuda
