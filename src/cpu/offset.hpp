// SPDX-License-Identifier: Apache-2.0
// What the exponentials of a tile are relative to where they are multiplied as bf16: a whole
// multiple of ln 2 near the tile's maximum. Two tiles then differ by a power of two, so that
// rounded exponentials move to their row's offset without a second rounding.
#pragma once

#include <cmath>

namespace flce::cpu {

// exponent * ln 2 + rest. `rest` is 0 unless the maximum is so large that a multiple of ln 2 is
// nothing exact; then `exponent` is 0 and `rest` the maximum itself.
template <typename Acc>
struct Offset {
  Acc exponent;
  Acc rest;
};

// The offset of a finite maximum: not below it, and less than ln 2 above it. Inline by force: each
// instruction set has its own copy.
template <typename Acc>
[[gnu::always_inline]] inline Offset<Acc> offset_of(Acc max) {
  constexpr Acc kLargest = Acc(4194304);
  constexpr Acc kLog2e = Acc(1.44269504088896341);
  if (!(max > -kLargest && max < kLargest)) return {Acc(0), max};
  const Acc scaled = max * kLog2e;
  const auto whole = static_cast<Acc>(static_cast<long long>(scaled));  // towards zero
  return {whole < scaled ? whole + Acc(1) : whole, Acc(0)};
}

// The same number as a double.
template <typename Acc>
[[gnu::always_inline]] inline double value_of(Offset<Acc> offset) {
  return static_cast<double>(offset.exponent) * 0.693147180559945309417 +
         static_cast<double>(offset.rest);
}

}  // namespace flce::cpu
