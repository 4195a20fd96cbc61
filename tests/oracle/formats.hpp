// SPDX-License-Identifier: Apache-2.0
// The oracle's own rounding to f32, bf16 and f16 (to nearest, ties to even), and their bit
// patterns. Used wherever tests make or read typed memory.
#pragma once

#include <cstdint>

namespace oracle {

enum class Format { kF64, kF32, kBF16, kF16 };

// The value of `format` that is nearest to `value`.
double round_to(Format format, double value);
// Half a unit in the last place, relative: 2^-53, 2^-24, 2^-8, 2^-11.
double unit_roundoff(Format format);
// The distance between the smallest numbers of the format: below it rounding is absolute.
double smallest_step(Format format);

// Bit patterns of values that the format holds exactly.
std::uint16_t encode_bf16(double value);
std::uint16_t encode_f16(double value);
double decode_bf16(std::uint16_t bits);
double decode_f16(std::uint16_t bits);

}  // namespace oracle
