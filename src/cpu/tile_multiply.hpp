// SPDX-License-Identifier: Apache-2.0
// Packing of operands and the product of packed blocks, as a template over the instruction set.
// Included by tile_impl.hpp only. Widening to the accumulation type happens here, while packing.
#pragma once

#include "cpu/kernels.hpp"
#include "cpu/vec.hpp"

namespace flce::cpu {

template <typename Isa, typename Acc>
struct MultiplyTile : Ops<Isa, Acc> {
  using O = Ops<Isa, Acc>;
  using typename O::Vec;
  static constexpr int kLeft = Isa::kLeftWidth;
  static constexpr int kVecs = 2;  // vectors of the right operand in a micro-tile
  static constexpr int kRight = kVecs * O::kLanes;

  template <typename T>
  static void pack_rows_of(const PackRows& source, std::int64_t width, Acc* packed) {
    const T* data = static_cast<const T*>(source.data);
    for (std::int64_t first = 0; first < source.rows; first += width) {
      for (std::int64_t r = 0; r < width; ++r) {
        Acc* to = packed + r;
        if (first + r < source.rows) {
          const T* from = data + (first + r) * source.row_stride;
          for (std::int64_t k = 0; k < source.depth; ++k) to[k * width] = Acc(widen(from[k]));
        } else {
          for (std::int64_t k = 0; k < source.depth; ++k) to[k * width] = Acc(0);
        }
      }
      packed += width * source.depth;
    }
  }

  template <typename T>
  static void pack_cols_of(const PackCols& source, Acc* packed) {
    const T* data = static_cast<const T*>(source.data);
    for (std::int64_t first = 0; first < source.cols; first += kRight) {
      const std::int64_t valid = source.cols - first < kRight ? source.cols - first : kRight;
      for (std::int64_t k = 0; k < source.depth; ++k, packed += kRight) {
        const T* from = data + k * source.row_stride + first;
        const bool skip = source.skip != nullptr && source.skip[k] != 0;
        if (valid == kRight && !skip) {
          for (int c = 0; c < kRight; ++c) packed[c] = Acc(widen(from[c]));
        } else {
          for (int c = 0; c < kRight; ++c) {
            packed[c] = c < valid && !skip ? Acc(widen(from[c])) : Acc(0);
          }
        }
      }
    }
  }

  // Calls pack(T{}) for the element type; f64 data meets only the double accumulation.
  template <typename Pack>
  static void visit_element(Dtype dtype, Pack pack) {
    if constexpr (sizeof(Acc) == 8) {
      pack(double{});
    } else {
      if (dtype == Dtype::kBF16) return pack(BF16{});
      if (dtype == Dtype::kF16) return pack(F16{});
      pack(float{});
    }
  }

  static void pack_rows(const PackRows& source, Dtype dtype, std::int64_t width, Acc* packed) {
    visit_element(dtype, [&]<typename T>(T) { pack_rows_of<T>(source, width, packed); });
  }
  static void pack_cols(const PackCols& source, Dtype dtype, Acc* packed) {
    visit_element(dtype, [&]<typename T>(T) { pack_cols_of<T>(source, packed); });
  }

  // One micro-tile, kLeft x kRight: sums of at most kPiece terms are made in registers and added to
  // c, in a fixed order. Short pieces keep the rounding error of a long sum small.
  static void micro(std::int64_t depth, const Acc* left, const Acc* right, Acc* c,
                    std::int64_t c_stride, bool add) {
    while (depth > 0) {
      const std::int64_t piece = depth < kPiece ? depth : kPiece;
      Vec sums[kLeft][kVecs] = {};
      for (std::int64_t k = 0; k < piece; ++k, left += kLeft, right += kRight) {
        const Vec r0 = O::load(right);
        const Vec r1 = O::load(right + O::kLanes);
#pragma GCC unroll 16
        for (int i = 0; i < kLeft; ++i) {
          sums[i][0] += left[i] * r0;
          sums[i][1] += left[i] * r1;
        }
      }
#pragma GCC unroll 16
      for (int i = 0; i < kLeft; ++i) {
#pragma GCC unroll 2
        for (int j = 0; j < kVecs; ++j) {
          Acc* to = c + i * c_stride + j * O::kLanes;
          O::store(to, add ? O::load(to) + sums[i][j] : sums[i][j]);
        }
      }
      add = true;
      depth -= piece;
    }
  }

  // Blocks of kInnerSum terms, so that a panel of the right operand stays in the first-level cache.
  static void multiply(const Multiply<Acc>& block) {
    if (block.depth == 0 && !block.add) {
      for (std::int64_t i = 0; i < block.rows; ++i) {
        for (std::int64_t j = 0; j < block.cols; ++j) block.c[i * block.c_stride + j] = Acc(0);
      }
    }
    for (std::int64_t k = 0; k < block.depth; k += kInnerSum) {
      const std::int64_t depth = block.depth - k < kInnerSum ? block.depth - k : kInnerSum;
      for (std::int64_t j = 0; j < block.cols; j += kRight) {
        const Acc* right = block.right + j * block.depth + k * kRight;
        for (std::int64_t i = 0; i < block.rows; i += kLeft) {
          micro(depth, block.left + i * block.depth + k * kLeft, right,
                block.c + i * block.c_stride + j, block.c_stride, block.add || k > 0);
        }
      }
    }
  }
};

}  // namespace flce::cpu
