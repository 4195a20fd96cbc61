// SPDX-License-Identifier: Apache-2.0
// Vectors of GCC's vector extension and the few functions on them that the tiles need. `Isa` is a
// tag type, so that code compiled for one instruction set never serves another.
#pragma once

#include <cmath>
#include <cstdint>
#include <cstring>
#include <limits>
#include <type_traits>

#include "cpu/offset.hpp"
#include "math/round.hpp"

namespace flce::cpu {

// The widest vector that a register of the file's instruction set holds, in bytes.
#if defined(__AVX512F__)
#define FLCE_REGISTER_BYTES 64
#define FLCE_REGISTER "+v"
#elif defined(__AVX__)
#define FLCE_REGISTER_BYTES 32
#define FLCE_REGISTER "+x"
#elif defined(__SSE2__)
#define FLCE_REGISTER_BYTES 16
#define FLCE_REGISTER "+x"
#elif defined(__aarch64__)
#define FLCE_REGISTER_BYTES 16
#define FLCE_REGISTER "+w"
#endif

template <typename Acc, int Bytes>
struct VecTypes {
  using Int = std::conditional_t<sizeof(Acc) == 4, std::int32_t, std::int64_t>;
  using Unsigned = std::make_unsigned_t<Int>;
  typedef Acc Vec __attribute__((vector_size(Bytes)));
  typedef Int Mask __attribute__((vector_size(Bytes)));
  typedef Unsigned Bits __attribute__((vector_size(Bytes)));
  // The same in memory, at any address an element may have.
  typedef Acc Unaligned __attribute__((vector_size(Bytes), aligned(sizeof(Acc)), may_alias));
  // As many 16-bit values as a vector has lanes.
  typedef std::uint16_t Halves __attribute__((vector_size(2 * (Bytes / sizeof(Acc)))));
  typedef std::uint16_t UnalignedHalves
      __attribute__((vector_size(2 * (Bytes / sizeof(Acc))), aligned(2), may_alias));
};

template <typename Isa, typename Acc>
struct Ops {
  static constexpr int kBytes = Isa::kBytes;
  static constexpr int kLanes = kBytes / static_cast<int>(sizeof(Acc));
  using Types = VecTypes<Acc, kBytes>;
  using Vec = typename Types::Vec;
  using Mask = typename Types::Mask;
  using Int = typename Types::Int;
  // ln 2 in two parts; the first has so few bits that its product with an exponent is exact.
  static constexpr Acc kLn2High = Acc(0.693359375);
  static constexpr Acc kLn2Low = Acc(-2.12194440054690583e-4);

  // value - 0 is the value, also for -0, so nothing but the broadcast remains.
  static Vec splat(Acc value) { return value - Vec{}; }
  // A word of a packed operand in every lane, whatever its bits mean.
  static Vec splat_word(const Acc* p) {
    Int word;
    std::memcpy(&word, p, sizeof word);
    return vec(Mask{} + word);
  }
  static Vec load(const Acc* p) { return *reinterpret_cast<const typename Types::Unaligned*>(p); }
  static void store(Acc* p, Vec v) { *reinterpret_cast<typename Types::Unaligned*>(p) = v; }
  static Mask bits(Vec v) { return reinterpret_cast<Mask>(v); }
  static Vec vec(Mask m) { return reinterpret_cast<Vec>(m); }

  // bf16 in memory <-> f32 lanes. A NaN stays a NaN if its payload ends in zeros, as that of every
  // widened bf16 does.
  static Vec load_bf16(const std::uint16_t* p) {
    const auto halves = *reinterpret_cast<const typename Types::UnalignedHalves*>(p);
    return reinterpret_cast<Vec>(__builtin_convertvector(halves, typename Types::Bits) << 16);
  }
  static typename Types::Bits rounded_bits(Vec v) {  // the bf16 in the upper half
    const auto bits = reinterpret_cast<typename Types::Bits>(v);
    return bits + 0x7fffu + ((bits >> 16) & 1u);
  }
  static typename Types::Halves to_bf16(Vec v) {
    return __builtin_convertvector(rounded_bits(v) >> 16, typename Types::Halves);
  }
  static void store_bf16(std::uint16_t* p, Vec v) {
    *reinterpret_cast<typename Types::UnalignedHalves*>(p) = to_bf16(v);
  }

  // Words of two bf16, `first` in the lower half.
  static void store_pairs(void* p, Vec first, Vec second) {
    const auto pairs = (rounded_bits(first) >> 16) | (rounded_bits(second) & 0xffff0000u);
    store(static_cast<Acc*>(p), reinterpret_cast<Vec>(pairs));
  }

  // Rows of a few cache lines, far from one another, are no stream that a processor would foresee.
  static void prefetch(const void* p, std::int64_t bytes) {
    for (std::int64_t i = 0; i < bytes; i += 64)
      __builtin_prefetch(static_cast<const char*>(p) + i);
  }

  // Tells the compiler to keep a sum in its register: GCC 12 else moves the sums of an unrolled
  // loop around and spills one of them.
  static void keep_in_register([[maybe_unused]] Vec& v) {
#if defined(FLCE_REGISTER)
    if constexpr (kBytes <= FLCE_REGISTER_BYTES) asm("" : FLCE_REGISTER(v));
#endif
  }

  // Both halve the vector until one lane is left.
  static Acc sum(Vec v) {
    Acc lanes[kLanes];
    store(lanes, v);
    for (int half = kLanes / 2; half > 0; half /= 2) {
      for (int i = 0; i < half; ++i) lanes[i] += lanes[i + half];
    }
    return lanes[0];
  }
  // The largest lane, of which none is NaN.
  static Acc max(Vec v) {
    Acc lanes[kLanes];
    store(lanes, v);
    for (int half = kLanes / 2; half > 0; half /= 2) {
      for (int i = 0; i < half; ++i) {
        lanes[i] = lanes[i] > lanes[i + half] ? lanes[i] : lanes[i + half];
      }
    }
    return lanes[0];
  }

  // u - offset, exact to the rounding of the result.
  template <typename Value>
  static Value distance(Value u, Offset<Acc> offset) {
    return ((u - offset.rest) - offset.exponent * kLn2High) - offset.exponent * kLn2Low;
  }

  // What the exponentials of a tile are relative to. Its maximum, so that the largest is exactly 1,
  // also in bf16; where exponentials are multiplied as bf16, an offset that keeps their bits.
  static Offset<Acc> tile_offset(Acc max) {
    return Isa::kTerms == 2 ? offset_of(max) : Offset<Acc>{Acc(0), max};
  }

  // exp(from - to) of two offsets; a power of two unless one of them is huge.
  static Acc factor_between(Offset<Acc> from, Offset<Acc> to) {
    if (from.rest == to.rest) return power_of_two(from.exponent - to.exponent);
    return exp(splat(distance(from.rest - to.rest, {to.exponent - from.exponent, Acc(0)})))[0];
  }

  // 2^n for whole n <= 0 in the normal range, 0 below it.
  static Acc power_of_two(Acc n) {
    constexpr int kMantissa = sizeof(Acc) == 4 ? 23 : 52;
    constexpr Int kBias = sizeof(Acc) == 4 ? 127 : 1023;
    if (!(n > -kBias)) return Acc(0);
    const Int bits = (static_cast<Int>(n) + kBias) << kMantissa;
    Acc value;
    std::memcpy(&value, &bits, sizeof value);
    return value;
  }

  // exp(x) for x <= 1: exactly 0 below the normal range, NaN for NaN. Two-step reduction by ln 2
  // and a Taylor polynomial of degree 7 on |r| <= ln(2)/2 (remainder 5e-9): 1 ulp in f32.
  static Vec exp(Vec x) {
    if constexpr (sizeof(Acc) == 8) {
      for (int i = 0; i < kLanes; ++i) x[i] = std::exp(x[i]);
      return x;
    } else {
      constexpr Acc kLowest = Acc(-87.33654);
      constexpr Acc kShift = Acc(12582912.0);  // 1.5 * 2^23: adding it rounds to a whole number
      const Vec clamped = x < kLowest ? splat(kLowest) : x;
      const Vec shifted = clamped * Acc(1.44269504088896341) + kShift;
      const Vec n = shifted - kShift;
      Vec r = clamped - n * kLn2High;
      r = r - n * kLn2Low;
      Vec p = splat(Acc(1.0 / 5040));
      p = p * r + Acc(1.0 / 720);
      p = p * r + Acc(1.0 / 120);
      p = p * r + Acc(1.0 / 24);
      p = p * r + Acc(1.0 / 6);
      p = p * r + Acc(0.5);
      p = p * r + Acc(1);
      p = p * r + Acc(1);
      // A power of two as a factor lets NaN through.
      const Vec power = vec((bits(shifted) - (bits(splat(kShift)) - 127)) << 23);
      return x < kLowest ? Vec{} : p * power;
    }
  }

  // tanh(x), and its slope 1 - tanh^2 without cancellation. Small arguments by Cephes' tanhf
  // polynomial (S. Moshier), others from exp: (1 - e) / (1 + e) with e = exp(-2|x|).
  static Vec tanh(Vec x, Vec& slope) {
    if constexpr (sizeof(Acc) == 8) {
      for (int i = 0; i < kLanes; ++i) {
        const Acc e = std::exp(-2 * std::fabs(x[i]));
        slope[i] = 4 * e / ((1 + e) * (1 + e));
        x[i] = std::tanh(x[i]);
      }
      return x;
    } else {
      const Mask sign = bits(x) & std::numeric_limits<Int>::min();
      const Vec size = vec(bits(x) & std::numeric_limits<Int>::max());
      const Vec e = exp(size * Acc(-2));
      const Vec inverse = Acc(1) / (Acc(1) + e);
      slope = Acc(4) * e * inverse * inverse;
      const Vec large = vec(bits((Acc(1) - e) * inverse) | sign);
      const Vec square = x * x;
      Vec p = splat(Acc(-5.70498872745e-3));
      p = p * square + Acc(2.06390887954e-2);
      p = p * square + Acc(-5.37397155531e-2);
      p = p * square + Acc(1.33314422036e-1);
      p = p * square + Acc(-3.33332819422e-1);
      const Vec small = p * square * x + x;
      return size < Acc(0.625) ? small : large;
    }
  }
};

}  // namespace flce::cpu
