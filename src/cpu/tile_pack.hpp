// SPDX-License-Identifier: Apache-2.0
// Packing of operands, as a template over the instruction set; included by tile_impl.hpp only.
// 16-bit elements are widened here or, for vdpbf16ps, put side by side in pairs.
#pragma once

#include "cpu/kernels.hpp"
#include "cpu/vec.hpp"

namespace flce::cpu {

template <typename Isa, typename Acc>
struct PackTile : Ops<Isa, Acc> {
  using O = Ops<Isa, Acc>;
  static constexpr int kLanes = O::kLanes;
  static constexpr int kLeft = Isa::kLeftWidth;
  static constexpr int kRight = Isa::kRightVecs * kLanes;
  static constexpr int kTerms = Isa::kTerms;
  static constexpr std::int64_t kPart = 64;  // words of a row that are moved at once
  static constexpr std::int64_t kAhead = 4;  // rows of words that are fetched ahead

  // Words as bits, whatever they hold, at any address that a bf16 may have.
  typedef std::conditional_t<sizeof(Acc) == 4, std::uint32_t, std::uint64_t> Word
      __attribute__((may_alias, aligned(2)));
  typedef std::uint32_t Four __attribute__((vector_size(16)));
  typedef std::uint32_t UnalignedFour __attribute__((vector_size(16), aligned(2), may_alias));

  static Word word_of(Acc value) {
    Word word;
    std::memcpy(&word, &value, sizeof word);
    return word;
  }
  static Word pair_of(BF16 first, BF16 second) {
    return static_cast<Word>(first.bits | std::uint32_t{second.bits} << 16);
  }

  static Four load_four(const Word* p) { return *reinterpret_cast<const UnalignedFour*>(p); }
  static void store_four(Word* p, Four v) { *reinterpret_cast<UnalignedFour*>(p) = v; }

  // Four rows of `count` words -> columns of a panel: to[k * width + row].
  static void transpose(const Word* const rows[4], std::int64_t count, std::int64_t width,
                        Word* to) {
    std::int64_t k = 0;
    if constexpr (sizeof(Word) == 4) {
      for (; k + 4 <= count; k += 4, to += 4 * width) {
        const Four a = load_four(rows[0] + k), b = load_four(rows[1] + k);
        const Four c = load_four(rows[2] + k), d = load_four(rows[3] + k);
        const Four ab0 = __builtin_shufflevector(a, b, 0, 4, 1, 5);
        const Four ab1 = __builtin_shufflevector(a, b, 2, 6, 3, 7);
        const Four cd0 = __builtin_shufflevector(c, d, 0, 4, 1, 5);
        const Four cd1 = __builtin_shufflevector(c, d, 2, 6, 3, 7);
        store_four(to, __builtin_shufflevector(ab0, cd0, 0, 1, 4, 5));
        store_four(to + width, __builtin_shufflevector(ab0, cd0, 2, 3, 6, 7));
        store_four(to + 2 * width, __builtin_shufflevector(ab1, cd1, 0, 1, 4, 5));
        store_four(to + 3 * width, __builtin_shufflevector(ab1, cd1, 2, 3, 6, 7));
      }
    }
    for (; k < count; ++k, to += width) {
      for (int r = 0; r < 4; ++r) to[r] = rows[r][k];
    }
  }

  // Words [first, first + count) of a row of `depth` elements: in place where they are words
  // already, else made in `buffer`.
  template <typename T>
  static const Word* row_words(const T* row, std::int64_t first, std::int64_t count,
                               std::int64_t depth, Word* buffer) {
    if constexpr (std::is_same_v<T, Acc> && kTerms == 1) {
      return reinterpret_cast<const Word*>(row + first);
    } else if constexpr (std::is_same_v<T, BF16> && kTerms == 2) {
      const std::int64_t whole = depth / 2 - first < count ? depth / 2 - first : count;
      if (whole == count) return reinterpret_cast<const Word*>(row + 2 * first);
      std::memcpy(buffer, row + 2 * first, static_cast<std::size_t>(whole) * sizeof(Word));
      buffer[whole] = pair_of(row[depth - 1], {0});
    } else {
      for (std::int64_t k = 0; k < count; ++k) buffer[k] = word_of(Acc(widen(row[first + k])));
    }
    return buffer;
  }

  // Panels `width` wide; the last one is as wide as its rows need in multiples of `unit`.
  template <typename T>
  static void pack_rows_of(const PackRows& source, std::int64_t width, std::int64_t unit,
                           Word* packed) {
    static constexpr Word kZeros[kPart] = {};
    const T* data = static_cast<const T*>(source.data);
    const std::int64_t words = (source.depth + kTerms - 1) / kTerms;
    Word buffer[4][kPart];
    for (std::int64_t first = 0; first < source.rows; first += width) {
      const std::int64_t left = source.rows - first;
      const std::int64_t wide = left < width ? (left + unit - 1) / unit * unit : width;
      for (std::int64_t k = 0; k < words; k += kPart) {
        const std::int64_t count = words - k < kPart ? words - k : kPart;
        for (std::int64_t r = 0; r < wide; r += 4) {
          const Word* rows[4];
          for (int i = 0; i < 4; ++i) {
            if (r + i < left && k + kPart < words) {
              O::prefetch(data + (first + r + i) * source.row_stride + (k + kPart) * kTerms,
                          kPart * kTerms * static_cast<std::int64_t>(sizeof(T)));
            }
            rows[i] = r + i < left ? row_words(data + (first + r + i) * source.row_stride, k, count,
                                               source.depth, buffer[i])
                                   : kZeros;
          }
          store_columns(rows, count, wide, wide - r, packed + k * wide + r);
        }
      }
      packed += wide * words;
    }
  }

  // As transpose, for the last rows of a panel that may be fewer than four.
  static void store_columns(const Word* const rows[4], std::int64_t count, std::int64_t width,
                            std::int64_t num_rows, Word* to) {
    if (num_rows >= 4) return transpose(rows, count, width, to);
    for (std::int64_t k = 0; k < count; ++k) {
      for (std::int64_t r = 0; r < num_rows; ++r) to[k * width + r] = rows[r][k];
    }
  }

  static float scale_of(const PackCols& source, std::int64_t k) {
    if (k >= source.depth) return 0.0f;
    return source.row_scale != nullptr ? source.row_scale[k] : 1.0f;
  }

  // Row `k` of a matrix as values of type Value, scaled: in place where nothing changes, else made
  // in `buffer`; zeros where it must not be read.
  template <typename Value, typename T>
  static const Value* scaled_row(const PackCols& source, std::int64_t k, Value* buffer) {
    const float scale = scale_of(source, k);
    const T* from = static_cast<const T*>(source.data) + k * source.row_stride;
    if (scale == 0.0f) {
      for (std::int64_t c = 0; c < source.cols; ++c) buffer[c] = Value{};
      return buffer;
    }
    if constexpr (std::is_same_v<Value, T>) {
      if (scale == 1.0f) return from;
    }
    for (std::int64_t c = 0; c < source.cols; ++c) {
      buffer[c] = round_to<Value>(Acc(widen(from[c])) * Acc(scale));
    }
    return buffer;
  }

  // A row of values as words. Pairs are made of two rows.
  template <typename T>
  static const Word* word_row(const PackCols& source, std::int64_t k, Word* buffer) {
    if constexpr (kTerms == 2) {
      BF16 buffers[2][kTileVocab];
      const BF16* first = scaled_row<BF16, T>(source, 2 * k, buffers[0]);
      const BF16* second = scaled_row<BF16, T>(source, 2 * k + 1, buffers[1]);
      for (std::int64_t c = 0; c < source.cols; ++c) buffer[c] = pair_of(first[c], second[c]);
      return buffer;
    } else {
      return reinterpret_cast<const Word*>(
          scaled_row<Acc, T>(source, k, reinterpret_cast<Acc*>(buffer)));
    }
  }

  template <typename T>
  static void pack_cols_of(const PackCols& source, Word* packed) {
    alignas(64) Word buffer[kTileVocab];
    const std::int64_t words = (source.depth + kTerms - 1) / kTerms;
    const std::int64_t whole = source.cols / kRight * kRight;
    const std::int64_t rest = source.cols - whole;
    const std::int64_t rest_width = (rest + kLanes - 1) / kLanes * kLanes;
    for (std::int64_t k = 0; k < words; ++k) {
      for (std::int64_t next = (k + kAhead) * kTerms;
           next < (k + kAhead + 1) * kTerms && next < source.depth; ++next) {
        O::prefetch(static_cast<const T*>(source.data) + next * source.row_stride,
                    source.cols * static_cast<std::int64_t>(sizeof(T)));
      }
      const Word* row = word_row<T>(source, k, buffer);
      Word* to = packed + k * kRight;
      for (std::int64_t c = 0; c < whole; c += kRight, to += kRight * words) {
        std::memcpy(to, row + c, kRight * sizeof(Word));
      }
      if (rest == 0) continue;
      Word* last = packed + whole * words + k * rest_width;
      for (std::int64_t i = 0; i < rest_width; ++i) last[i] = i < rest ? row[whole + i] : Word(0);
    }
  }

  // Calls pack(T{}) for the element type; f64 data meets only the double accumulation, and pairs
  // are only made of bf16.
  template <typename Pack>
  static void visit_element(Dtype dtype, Pack pack) {
    if constexpr (sizeof(Acc) == 8) {
      pack(double{});
    } else if constexpr (kTerms == 2) {
      pack(BF16{});
    } else {
      if (dtype == Dtype::kBF16) return pack(BF16{});
      if (dtype == Dtype::kF16) return pack(F16{});
      pack(float{});
    }
  }

  static void pack_left(const PackRows& source, Dtype dtype, Acc* packed) {
    visit_element(dtype, [&]<typename T>(T) {
      pack_rows_of<T>(source, kLeft, kLeft, reinterpret_cast<Word*>(packed));
    });
  }
  static void pack_right(const PackRows& source, Dtype dtype, Acc* packed) {
    visit_element(dtype, [&]<typename T>(T) {
      pack_rows_of<T>(source, kRight, kLanes, reinterpret_cast<Word*>(packed));
    });
  }
  static void pack_right_cols(const PackCols& source, Dtype dtype, Acc* packed) {
    visit_element(dtype,
                  [&]<typename T>(T) { pack_cols_of<T>(source, reinterpret_cast<Word*>(packed)); });
  }
};

}  // namespace flce::cpu
