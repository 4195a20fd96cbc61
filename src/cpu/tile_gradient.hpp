// SPDX-License-Identifier: Apache-2.0
// The logit gradient, made from kept logits or exponentials while it is packed for a product, so
// that it is never stored. As a template over the instruction set; included by tile_impl.hpp only.
//
// The target's entry never comes from a kept value: it is RowCoefficients::t, exact in the
// accumulation type.
#pragma once

#include "cpu/tile_loss.hpp"

namespace flce::cpu {

template <typename Isa, typename Acc>
struct GradientTile : Ops<Isa, Acc> {
  using O = Ops<Isa, Acc>;
  using typename O::Vec;
  using Loss = LossTile<Isa, Acc>;
  using Block = GradientBlock<Acc>;
  using Row = RowCoefficients<Acc>;
  static constexpr int kLanes = O::kLanes;
  static constexpr int kLeft = Isa::kLeftWidth;

  // A row of `cols` <= kTileVocab values starting at local column `first`, all in one tile when
  // they come from exponentials.
  static Vec load_kept(const Block& b, std::int64_t token, std::int64_t at, std::int64_t valid) {
    const std::int64_t offset = token * b.kept_stride + at;
    if constexpr (sizeof(Acc) == 4) {
      if (b.kept_dtype == Dtype::kBF16) {
        const BF16* from = static_cast<const BF16*>(b.kept) + offset;
        Vec v{};
        if (valid >= kLanes) {
          for (int i = 0; i < kLanes; ++i) v[i] = widen(from[i]);
        } else {
          for (std::int64_t i = 0; i < valid; ++i) v[i] = widen(from[i]);
        }
        return v;
      }
    }
    return Loss::load_part(static_cast<const Acc*>(b.kept) + offset, valid);
  }

  static Vec class_weights(const Block& b, std::int64_t col, std::int64_t valid) {
    return b.class_weight != nullptr ? Loss::load_part(b.class_weight + col, valid)
                                     : O::splat(Acc(1));
  }

  static void from_exponentials(const Block& b, std::int64_t token, std::int64_t first,
                                std::int64_t cols, Acc* to) {
    const Row& row = b.rows[token];
    const Acc tile_max = b.tile_max[token * b.tile_stride + first / kTileVocab];
    const Acc factor = row.a * O::exp(O::splat(tile_max - row.max))[0];
    for (std::int64_t j = 0; j < cols; j += kLanes) {
      const std::int64_t valid = cols - j;
      Vec g = load_kept(b, token, first + j - b.kept_first_col, valid) * factor;
      if (row.q != Acc(0)) g -= row.q * class_weights(b, first + j, valid);
      O::store(to + j, g);
    }
  }

  static void from_logits(const Block& b, std::int64_t token, std::int64_t first, std::int64_t cols,
                          Acc* to) {
    const Row& row = b.rows[token];
    for (std::int64_t j = 0; j < cols; j += kLanes) {
      const std::int64_t valid = cols - j;
      const Vec z = load_kept(b, token, first + j - b.kept_first_col, valid);
      Vec slope = O::splat(Acc(1));
      const Vec distance = Loss::capped(z, b.map, row.inverse_temperature, slope) - row.max;
      const Vec e = O::exp(distance);
      Vec g = row.a * e;
      if (row.q != Acc(0)) g -= row.q * class_weights(b, first + j, valid);
      if (row.h != Acc(0)) g -= e == Acc(0) ? Vec{} : row.h * e * (distance + row.k);
      if (b.map.softcap != Acc(0)) g *= slope;
      O::store(to + j, g);
    }
  }

  static void gradient_row(const Block& b, std::int64_t token, std::int64_t first,
                           std::int64_t cols, Acc* to) {
    const Row& row = b.rows[token];
    if (!row.active) {
      for (std::int64_t j = 0; j < cols; ++j) to[j] = Acc(0);
      return;
    }
    if (b.is_logits) {
      from_logits(b, token, first, cols, to);
    } else {
      from_exponentials(b, token, first, cols, to);
    }
    if (row.target >= first && row.target < first + cols) to[row.target - first] = row.t;
  }

  // Calls visit(first local column, columns) for the pieces of the block that lie in one tile each.
  template <typename Visit>
  static void for_each_piece(const Block& b, Visit visit) {
    const std::int64_t end = b.first_col + b.num_cols;
    for (std::int64_t first = b.first_col; first < end;) {
      const std::int64_t tile_end = (first / kTileVocab + 1) * kTileVocab;
      const std::int64_t cols = (tile_end < end ? tile_end : end) - first;
      visit(first, cols);
      first += cols;
    }
  }

  static void scale_row(Acc alpha, std::int64_t cols, Acc* values) {
    if (alpha == Acc(1)) return;
    for (std::int64_t j = 0; j < cols; ++j) values[j] *= alpha;
  }

  static void pack_by_token(const Block& b, Acc* packed) {
    Acc values[kTileVocab];
    for (std::int64_t panel = 0; panel < b.num_tokens; panel += kLeft) {
      for (int r = 0; r < kLeft; ++r) {
        const std::int64_t token = panel + r;
        Acc* to = packed + r;
        for_each_piece(b, [&](std::int64_t first, std::int64_t cols) {
          Acc* at = to + (first - b.first_col) * kLeft;
          if (token >= b.num_tokens) {
            for (std::int64_t j = 0; j < cols; ++j) at[j * kLeft] = Acc(0);
            return;
          }
          gradient_row(b, token, first, cols, values);
          scale_row(b.alpha, cols, values);
          for (std::int64_t j = 0; j < cols; ++j) at[j * kLeft] = values[j];
        });
      }
      packed += kLeft * b.num_cols;
    }
  }

  // The block's columns lie in one tile.
  static void pack_by_vocab(const Block& b, Acc* packed, double* bias_sums) {
    Acc values[kTileVocab];
    const std::int64_t panel_size = kLeft * b.num_tokens;
    for (std::int64_t token = 0; token < b.num_tokens; ++token) {
      gradient_row(b, token, b.first_col, b.num_cols, values);
      if (bias_sums != nullptr) {
        for (std::int64_t j = 0; j < b.num_cols; ++j) bias_sums[j] += values[j];
      }
      scale_row(b.alpha, b.num_cols, values);
      for (std::int64_t j = b.num_cols; j < kTileVocab; ++j) values[j] = Acc(0);
      Acc* to = packed + token * kLeft;
      for (std::int64_t j = 0; j < b.num_cols; j += kLeft, to += panel_size) {
        for (int r = 0; r < kLeft; ++r) to[r] = values[j + r];
      }
    }
  }
};

}  // namespace flce::cpu
