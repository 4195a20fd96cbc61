// SPDX-License-Identifier: Apache-2.0
// Vectors of GCC's vector extension and the few functions on them that the tiles need. `Isa` is a
// tag type, so that code compiled for one instruction set never serves another.
#pragma once

#include <cmath>
#include <cstdint>
#include <cstring>
#include <limits>
#include <type_traits>

#include "math/round.hpp"

namespace flce::cpu {

template <typename Acc, int Bytes>
struct VecTypes {
  using Int = std::conditional_t<sizeof(Acc) == 4, std::int32_t, std::int64_t>;
  typedef Acc Vec __attribute__((vector_size(Bytes)));
  typedef Int Mask __attribute__((vector_size(Bytes)));
  // The same in memory, at any address an element may have.
  typedef Acc Unaligned __attribute__((vector_size(Bytes), aligned(sizeof(Acc)), may_alias));
};

template <typename Isa, typename Acc>
struct Ops {
  static constexpr int kBytes = Isa::kBytes;
  static constexpr int kLanes = kBytes / static_cast<int>(sizeof(Acc));
  using Vec = typename VecTypes<Acc, kBytes>::Vec;
  using Mask = typename VecTypes<Acc, kBytes>::Mask;
  using Int = typename VecTypes<Acc, kBytes>::Int;

  static Vec splat(Acc value) { return Vec{} + value; }
  static Vec load(const Acc* p) {
    return *reinterpret_cast<const typename VecTypes<Acc, kBytes>::Unaligned*>(p);
  }
  static void store(Acc* p, Vec v) {
    *reinterpret_cast<typename VecTypes<Acc, kBytes>::Unaligned*>(p) = v;
  }
  static Mask bits(Vec v) { return reinterpret_cast<Mask>(v); }
  static Vec vec(Mask m) { return reinterpret_cast<Vec>(m); }

  static Acc sum(Vec v) {
    Acc total = v[0];
    for (int i = 1; i < kLanes; ++i) total += v[i];
    return total;
  }
  // The largest lane; NaN lanes lose.
  static Acc max(Vec v) {
    Acc best = v[0];
    for (int i = 1; i < kLanes; ++i) best = v[i] > best || best != best ? v[i] : best;
    return best;
  }

  // exp(x) for x <= 0: exactly 0 below the normal range, NaN for NaN. Two-step reduction by ln 2
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
      Vec r = clamped - n * Acc(0.693359375);
      r = r - n * Acc(-2.12194440054690583e-4);
      Vec p = splat(Acc(1.0 / 5040));
      p = p * r + Acc(1.0 / 720);
      p = p * r + Acc(1.0 / 120);
      p = p * r + Acc(1.0 / 24);
      p = p * r + Acc(1.0 / 6);
      p = p * r + Acc(0.5);
      p = p * r + Acc(1);
      p = p * r + Acc(1);
      const Mask exponent = (bits(shifted) - bits(splat(kShift))) << 23;
      const Vec result = vec(bits(p) + exponent);
      return x < kLowest ? Vec{} : (x != x ? x : result);
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
