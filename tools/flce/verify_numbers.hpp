// SPDX-License-Identifier: Apache-2.0
// Single numbers in typed memory: the rounding to bf16 and f16 (nearest, ties to even) that data
// generators, converters and comparisons of the command line share.
#pragma once

#include <bit>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstring>

#include "flce/types.hpp"

namespace flce::cli {

inline std::uint16_t bf16_bits(float value) {
  const auto bits = std::bit_cast<std::uint32_t>(value);
  if (std::isnan(value)) return static_cast<std::uint16_t>((bits >> 16) | 0x0040U);
  return static_cast<std::uint16_t>((bits + 0x7FFFU + ((bits >> 16) & 1U)) >> 16);
}

inline float float_of_bf16(std::uint16_t bits) {
  return std::bit_cast<float>(static_cast<std::uint32_t>(bits) << 16);
}

std::uint16_t f16_bits(float value);
float float_of_f16(std::uint16_t bits);

// Element `index` of an array of this type. Integers are exact up to 2^53.
void store_number(Dtype dtype, void* data, std::int64_t index, double value);
double load_number(Dtype dtype, const void* data, std::int64_t index);

}  // namespace flce::cli
