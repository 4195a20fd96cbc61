// SPDX-License-Identifier: Apache-2.0
// 16-bit element types and the conversions between them and the accumulation types: round to
// nearest even, NaN stays NaN, overflow becomes infinity.
#pragma once

#include <cstdint>
#include <cstring>

#include "math/macros.hpp"

namespace flce {

struct BF16 {
  std::uint16_t bits;
};
struct F16 {
  std::uint16_t bits;
};

namespace detail {

FLCE_HD inline std::uint32_t bits_of(float value) {
  std::uint32_t bits;
  std::memcpy(&bits, &value, sizeof bits);
  return bits;
}

FLCE_HD inline float float_of(std::uint32_t bits) {
  float value;
  std::memcpy(&value, &bits, sizeof value);
  return value;
}

}  // namespace detail

FLCE_HD inline float widen(BF16 value) { return detail::float_of(std::uint32_t{value.bits} << 16); }

// A half's bits, moved up, are the float scaled by 2^-112, denormals included.
FLCE_HD inline float widen(F16 value) {
  const std::uint32_t magnitude = std::uint32_t{value.bits} & 0x7fffu;
  const std::uint32_t sign = (std::uint32_t{value.bits} & 0x8000u) << 16;
  if (magnitude >= 0x7c00u) {  // infinity and NaN keep their mantissa
    return detail::float_of(sign | 0x7f800000u | (magnitude << 13));
  }
  const float scaled = detail::float_of(magnitude << 13) * 0x1p112f;
  return detail::float_of(sign | detail::bits_of(scaled));
}

FLCE_HD inline float widen(float value) { return value; }
FLCE_HD inline double widen(double value) { return value; }

FLCE_HD inline BF16 round_bf16(float value) {
  const std::uint32_t bits = detail::bits_of(value);
  if ((bits & 0x7fffffffu) > 0x7f800000u) {
    return {static_cast<std::uint16_t>((bits >> 16) | 0x40u)};
  }
  return {static_cast<std::uint16_t>((bits + 0x7fffu + ((bits >> 16) & 1u)) >> 16)};
}

FLCE_HD inline F16 round_f16(float value) {
  const std::uint32_t bits = detail::bits_of(value);
  const std::uint32_t magnitude = bits & 0x7fffffffu;
  const auto sign = static_cast<std::uint16_t>((bits >> 16) & 0x8000u);
  if (magnitude > 0x7f800000u) return {static_cast<std::uint16_t>(sign | 0x7e00u)};
  if (magnitude >= 0x477ff000u) return {static_cast<std::uint16_t>(sign | 0x7c00u)};  // >= 65520
  if (magnitude < 0x38800000u) {  // below 2^-14: adding 0.5 rounds to multiples of 2^-24
    const float sum = detail::float_of(magnitude) + 0.5f;
    return {static_cast<std::uint16_t>(sign | (detail::bits_of(sum) - 0x3f000000u))};
  }
  const std::uint32_t odd = (magnitude >> 13) & 1u;
  return {static_cast<std::uint16_t>(sign | ((magnitude - 0x38000000u + 0xfffu + odd) >> 13))};
}

// round_to<T>(value): the value in T. A double goes to 16 bits by way of the float.
template <typename T>
FLCE_HD inline T round_to(double value) {
  return static_cast<T>(value);
}
template <>
FLCE_HD inline BF16 round_to<BF16>(double value) {
  return round_bf16(static_cast<float>(value));
}
template <>
FLCE_HD inline F16 round_to<F16>(double value) {
  return round_f16(static_cast<float>(value));
}

}  // namespace flce
