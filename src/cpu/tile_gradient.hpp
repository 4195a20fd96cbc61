// SPDX-License-Identifier: Apache-2.0
// The logit gradient, made from kept logits or exponentials while it is packed for a product, so
// that it is never stored. As a template over the instruction set; included by tile_impl.hpp only.
//
// The target's entry never comes from a kept value: it is RowCoefficients::t, exact in the
// accumulation type; or it is left out here when the gradient is packed apart.
#pragma once

#include "cpu/tile_loss.hpp"
#include "cpu/tile_pack.hpp"

namespace flce::cpu {

template <typename Isa, typename Acc>
struct GradientTile : Ops<Isa, Acc> {
  using O = Ops<Isa, Acc>;
  using typename O::Vec;
  using Loss = LossTile<Isa, Acc>;
  using Pack = PackTile<Isa, Acc>;
  using Word = typename Pack::Word;
  using Block = GradientBlock<Acc>;
  using Row = RowCoefficients<Acc>;
  static constexpr int kLanes = O::kLanes;
  static constexpr int kLeft = Isa::kLeftWidth;
  static constexpr int kTerms = Isa::kTerms;
  static constexpr int kGroup = 8;  // rows that are made before they are packed
  static_assert(kGroup % 4 == 0 && kGroup % kTerms == 0 && kTileVocab % kLeft == 0);

  template <typename Valid>
  static Vec load_kept(const Block& b, std::int64_t offset, Valid valid) {
    if constexpr (sizeof(Acc) == 4) {
      if (b.kept_dtype == Dtype::kBF16) {
        const auto* from = static_cast<const std::uint16_t*>(b.kept) + offset;
        if constexpr (std::is_same_v<Valid, typename Loss::Whole>) return O::load_bf16(from);
        Vec v{};
        for (std::int64_t i = 0; i < valid; ++i) v[i] = widen(BF16{from[i]});
        return v;
      }
    }
    return Loss::load_part(static_cast<const Acc*>(b.kept) + offset, valid);
  }

  template <typename Valid>
  static Vec class_weights(const Block& b, std::int64_t col, Valid valid) {
    return b.class_weight != nullptr ? Loss::load_part(b.class_weight + col, valid)
                                     : O::splat(Acc(1));
  }

  static void from_exponentials(const Block& b, std::int64_t token, Acc* to) {
    const Row& row = b.rows[token];
    const Offset<Acc> offset =
        O::tile_offset(b.tile_max[token * b.tile_stride + b.first_col / kTileVocab]);
    const Acc factor = b.is_unscaled ? O::factor_between(offset, offset_of(row.max))
                                     : row.a * O::exp(O::splat(-O::distance(row.max, offset)))[0];
    const std::int64_t kept = token * b.kept_stride + b.first_col - b.kept_first_col;
    Loss::for_each_vec(b.num_cols, [&](std::int64_t j, auto valid) {
      Vec g = load_kept(b, kept + j, valid) * factor;
      if (row.q != Acc(0)) g -= row.q * class_weights(b, b.first_col + j, valid);
      O::store(to + j, g);
    });
  }

  static void from_logits(const Block& b, std::int64_t token, Acc* to) {
    const Row& row = b.rows[token];
    const std::int64_t kept = token * b.kept_stride + b.first_col - b.kept_first_col;
    Loss::for_each_vec(b.num_cols, [&](std::int64_t j, auto valid) {
      const Vec z = load_kept(b, kept + j, valid);
      Vec slope = O::splat(Acc(1));
      const Vec distance = Loss::capped(z, b.map, row.inverse_temperature, slope) - row.max;
      const Vec e = O::exp(distance);
      Vec g = row.a * e;
      if (row.q != Acc(0)) g -= row.q * class_weights(b, b.first_col + j, valid);
      if (row.h != Acc(0)) g -= e == Acc(0) ? Vec{} : row.h * e * (distance + row.k);
      if (b.map.softcap != Acc(0)) g *= slope;
      O::store(to + j, g);
    });
  }

  // The block's columns of one token's gradient, zeros up to a whole tile; zeros beyond the last
  // token.
  static void gradient_row(const Block& b, std::int64_t token, Acc* to) {
    const bool is_zero = token >= b.num_tokens || !b.rows[token].active;
    if (!is_zero) {
      if (b.is_logits) {
        from_logits(b, token, to);
      } else {
        from_exponentials(b, token, to);
      }
      const std::int64_t target = b.rows[token].target - b.first_col;
      if (target >= 0 && target < b.num_cols) to[target] = b.is_apart ? Acc(0) : b.rows[token].t;
    }
    for (std::int64_t j = is_zero ? 0 : b.num_cols; j < kTileVocab; ++j) to[j] = Acc(0);
  }

  // Asks for what a later row is made of.
  static void prefetch_row(const Block& b, std::int64_t token) {
    if (token >= b.num_tokens) return;
    const auto size = static_cast<std::int64_t>(size_of(b.kept_dtype));
    const std::int64_t at = token * b.kept_stride + b.first_col - b.kept_first_col;
    O::prefetch(static_cast<const char*>(b.kept) + at * size, b.num_cols * size);
  }

  static void scale_row(Acc alpha, Acc* values) {
    if (alpha == Acc(1)) return;
    for (std::int64_t j = 0; j < kTileVocab; ++j) values[j] *= alpha;
  }

  // A row in bf16: neighbouring columns are one word.
  static void pair_columns(const Acc* values, Word* to) {
    for (std::int64_t j = 0; j < kTileVocab; j += kLanes) {
      O::store_bf16(reinterpret_cast<std::uint16_t*>(to) + j, O::load(values + j));
    }
  }

  // Two rows in bf16 as one row of words.
  static void pair_rows(const Acc* first, const Acc* second, Word* to) {
    for (std::int64_t j = 0; j < kTileVocab; j += kLanes) {
      O::store_pairs(to + j, O::load(first + j), O::load(second + j));
    }
  }

  static void pack_by_token(const Block& b, Acc* packed) {
    alignas(64) Acc values[4][kTileVocab];
    [[maybe_unused]] alignas(64) Word pairs[4][kTileVocab / 2];
    const std::int64_t words = (b.num_cols + kTerms - 1) / kTerms;
    for (std::int64_t panel = 0; panel < b.num_tokens; panel += kLeft) {
      for (int r = 0; r < kLeft; r += 4) {
        const Word* rows[4];
        for (int i = 0; i < 4; ++i) {
          prefetch_row(b, panel + r + i + 4);
          gradient_row(b, panel + r + i, values[i]);
          if (!b.is_unscaled) scale_row(b.alpha, values[i]);
          rows[i] = reinterpret_cast<const Word*>(values[i]);
          if constexpr (kTerms == 2) {
            pair_columns(values[i], pairs[i]);
            rows[i] = pairs[i];
          }
        }
        Pack::transpose(rows, words, kLeft, reinterpret_cast<Word*>(packed) + r);
      }
      packed += kLeft * words;
    }
  }

  // Adds the sum over tokens, in their order, to the bias sums.
  static void add_bias(const Block& b, std::int64_t token, const Acc* values, double* bias_sums) {
    if (token >= b.num_tokens || !b.rows[token].active) return;
    const Acc scale = b.is_unscaled ? b.rows[token].scale : Acc(1);
    for (std::int64_t j = 0; j < b.num_cols; ++j) bias_sums[j] += scale * values[j];
  }

  static void pack_by_vocab(const Block& b, Acc* packed, double* bias_sums) {
    alignas(64) Acc values[kGroup][kTileVocab];
    [[maybe_unused]] alignas(64) Word pairs[kGroup / 2][kTileVocab];
    const std::int64_t words = (b.num_tokens + kTerms - 1) / kTerms;
    Word* to = reinterpret_cast<Word*>(packed);
    for (std::int64_t token = 0; token < b.num_tokens; token += kGroup) {
      const Word* rows[kGroup];
      for (int i = 0; i < kGroup; ++i) {
        prefetch_row(b, token + i + 4);
        gradient_row(b, token + i, values[i]);
        if (bias_sums != nullptr) add_bias(b, token + i, values[i], bias_sums);
        if (!b.is_unscaled) scale_row(b.alpha, values[i]);
        rows[i] = reinterpret_cast<const Word*>(values[i]);
      }
      if constexpr (kTerms == 2) {
        for (int i = 0; i < kGroup / 2; ++i) {
          pair_rows(values[2 * i], values[2 * i + 1], pairs[i]);
          rows[i] = pairs[i];
        }
      }
      const std::int64_t first = token / kTerms;
      const std::int64_t left = words - first;
      const std::int64_t count = left < kGroup / kTerms ? left : kGroup / kTerms;
      store_rows(rows, count, b.num_cols, words, to + first * kLeft);
    }
  }

  // Rows of words -> panels of kLeft columns, `words` rows apart.
  static void store_rows(const Word* const* rows, std::int64_t count, std::int64_t cols,
                         std::int64_t words, Word* to) {
    for (std::int64_t col = 0; col < cols; col += kLeft, to += words * kLeft) {
      for (std::int64_t k = 0; k < count; ++k) {
        std::memcpy(to + k * kLeft, rows[k] + col, kLeft * sizeof(Word));
      }
    }
  }
};

}  // namespace flce::cpu
