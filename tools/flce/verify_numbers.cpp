// SPDX-License-Identifier: Apache-2.0
#include "verify_numbers.hpp"

namespace flce::cli {
namespace {

template <typename Number>
void put(void* data, std::int64_t index, Number value) {
  std::memcpy(static_cast<std::byte*>(data) + index * static_cast<std::int64_t>(sizeof value),
              &value, sizeof value);
}

template <typename Number>
Number get(const void* data, std::int64_t index) {
  Number value;
  std::memcpy(&value,
              static_cast<const std::byte*>(data) + index * static_cast<std::int64_t>(sizeof value),
              sizeof value);
  return value;
}

}  // namespace

std::uint16_t f16_bits(float value) {
  const auto bits = std::bit_cast<std::uint32_t>(value);
  const auto sign = static_cast<std::uint16_t>((bits >> 16) & 0x8000U);
  const std::uint32_t magnitude = bits & 0x7FFFFFFFU;
  if (magnitude > 0x7F800000U) return sign | 0x7E00U;   // NaN
  if (magnitude >= 0x477FF000U) return sign | 0x7C00U;  // rounds to 65536 or more: infinity
  if (magnitude < 0x38800000U) {
    // Below the smallest normal number: adding 0.5 leaves the multiple of 2^-24 in the last bits.
    const float shifted = std::bit_cast<float>(magnitude) + 0.5F;
    return sign | static_cast<std::uint16_t>(std::bit_cast<std::uint32_t>(shifted) - 0x3F000000U);
  }
  const std::uint32_t rounded = magnitude + 0xFFFU + ((magnitude >> 13) & 1U);
  return sign | static_cast<std::uint16_t>((rounded - 0x38000000U) >> 13);
}

float float_of_f16(std::uint16_t bits) {
  const int exponent = (bits >> 10) & 0x1F;
  const int digits = bits & 0x3FF;
  const float sign = (bits & 0x8000U) != 0 ? -1.0F : 1.0F;
  if (exponent == 0x1F) return digits != 0 ? NAN : sign * INFINITY;
  if (exponent == 0) return sign * std::ldexp(static_cast<float>(digits), -24);
  return sign * std::ldexp(static_cast<float>(digits + 1024), exponent - 25);
}

void store_number(Dtype dtype, void* data, std::int64_t index, double value) {
  switch (dtype) {
    case Dtype::kF64:
      return put(data, index, value);
    case Dtype::kF32:
      return put(data, index, static_cast<float>(value));
    case Dtype::kBF16:
      return put(data, index, bf16_bits(static_cast<float>(value)));
    case Dtype::kF16:
      return put(data, index, f16_bits(static_cast<float>(value)));
    case Dtype::kI64:
      return put(data, index, static_cast<std::int64_t>(value));
    case Dtype::kI32:
      return put(data, index, static_cast<std::int32_t>(value));
    case Dtype::kNone:
      return;
  }
}

double load_number(Dtype dtype, const void* data, std::int64_t index) {
  switch (dtype) {
    case Dtype::kF64:
      return get<double>(data, index);
    case Dtype::kF32:
      return get<float>(data, index);
    case Dtype::kBF16:
      return float_of_bf16(get<std::uint16_t>(data, index));
    case Dtype::kF16:
      return float_of_f16(get<std::uint16_t>(data, index));
    case Dtype::kI64:
      return static_cast<double>(get<std::int64_t>(data, index));
    case Dtype::kI32:
      return get<std::int32_t>(data, index);
    case Dtype::kNone:
      return 0.0;
  }
  return 0.0;
}

}  // namespace flce::cli
