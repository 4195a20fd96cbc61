// SPDX-License-Identifier: Apache-2.0
// The product of packed blocks, as a template over the instruction set. Included by tile_impl.hpp
// only.
#pragma once

#include "cpu/kernels.hpp"
#include "cpu/vec.hpp"

namespace flce::cpu {

template <typename Isa, typename Acc>
struct MultiplyTile : Ops<Isa, Acc> {
  using O = Ops<Isa, Acc>;
  using typename O::Vec;
  static constexpr int kLanes = O::kLanes;
  static constexpr int kLeft = Isa::kLeftWidth;
  static constexpr int kVecs = Isa::kRightVecs;  // vectors of the right operand in a micro-tile
  static constexpr int kRight = kVecs * kLanes;
  static constexpr int kUnroll = 4;
  static_assert(kVecs <= 3);

  // sums += one word of the left operand's rows times one of the right operand's columns.
  template <int Vecs>
  [[gnu::always_inline]] static inline void add_word(const Acc* left, const Acc* right,
                                                     Vec (&sums)[kLeft][Vecs]) {
    Vec columns[Vecs];
#pragma GCC unroll 4
    for (int j = 0; j < Vecs; ++j) {
      columns[j] = O::load(right + j * kLanes);
      O::keep_in_register(columns[j]);
    }
#pragma GCC unroll 16
    for (int i = 0; i < kLeft; ++i) {
      Vec row = O::splat_word(left + i);
      O::keep_in_register(row);
#pragma GCC unroll 4
      for (int j = 0; j < Vecs; ++j) {
        sums[i][j] = Isa::multiply_add(row, columns[j], sums[i][j]);
        O::keep_in_register(sums[i][j]);
      }
    }
  }

  // One micro-tile, kLeft x Vecs: sums of at most kPiece words are made in registers and added to
  // c, in a fixed order. Short pieces keep the rounding error of a long sum small. The inner loop
  // is unrolled so that it has few enough turns for the processor to foresee its end; meanwhile the
  // next panel of the left operand, `left_panel` elements on, comes from the second-level cache.
  template <int Vecs>
  static void micro(std::int64_t words, const Acc* left, const Acc* right, Acc* c,
                    std::int64_t c_stride, bool add, std::int64_t left_panel) {
    while (words > 0) {
      const std::int64_t piece = words < kPiece ? words : kPiece;
      for (int i = 0; i < kLeft; ++i) __builtin_prefetch(c + i * c_stride);
      Vec sums[kLeft][Vecs] = {};
      std::int64_t k = 0;
      for (; k + kUnroll <= piece; k += kUnroll) {
        __builtin_prefetch(left + left_panel);
#pragma GCC unroll 4
        for (int u = 0; u < kUnroll; ++u) {
          add_word<Vecs>(left + u * kLeft, right + u * Vecs * kLanes, sums);
        }
        left += kUnroll * kLeft;
        right += kUnroll * Vecs * kLanes;
      }
      for (; k < piece; ++k, left += kLeft, right += Vecs * kLanes) {
        add_word<Vecs>(left, right, sums);
      }
#pragma GCC unroll 16
      for (int i = 0; i < kLeft; ++i) {
#pragma GCC unroll 4
        for (int j = 0; j < Vecs; ++j) {
          Acc* to = c + i * c_stride + j * kLanes;
          O::store(to, add ? O::load(to) + sums[i][j] : sums[i][j]);
        }
      }
      add = true;
      words -= piece;
    }
  }

  // All rows against one panel of `Vecs` vectors, words [first, first + words) of the sum.
  template <int Vecs>
  static void run_panel(const Multiply<Acc>& block, std::int64_t col, std::int64_t first,
                        std::int64_t words) {
    const Acc* right = block.right + col * block.words + first * Vecs * kLanes;
    for (std::int64_t i = 0; i < block.rows; i += kLeft) {
      micro<Vecs>(words, block.left + i * block.words + first * kLeft, right,
                  block.c + i * block.c_stride + col, block.c_stride, block.add || first > 0,
                  kLeft * block.words);
    }
  }

  // Blocks of kInnerSum words, so that a panel of the right operand stays in the first-level cache.
  static void multiply(const Multiply<Acc>& block) {
    if (block.words == 0 && !block.add) {
      for (std::int64_t i = 0; i < block.rows; ++i) {
        for (std::int64_t j = 0; j < block.cols; ++j) block.c[i * block.c_stride + j] = Acc(0);
      }
    }
    for (std::int64_t first = 0; first < block.words; first += kInnerSum) {
      const std::int64_t left = block.words - first;
      const std::int64_t words = left < kInnerSum ? left : kInnerSum;
      std::int64_t col = 0;
      for (; col + kRight <= block.cols; col += kRight) run_panel<kVecs>(block, col, first, words);
      const std::int64_t vecs = (block.cols - col + kLanes - 1) / kLanes;
      if (vecs == 0) continue;
      if (vecs == 1) {
        run_panel<1>(block, col, first, words);
      } else if (vecs == 2 && kVecs > 1) {
        run_panel<(kVecs > 1 ? 2 : 1)>(block, col, first, words);
      } else {
        run_panel<kVecs>(block, col, first, words);
      }
    }
  }
};

}  // namespace flce::cpu
