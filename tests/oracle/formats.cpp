// SPDX-License-Identifier: Apache-2.0
#include "oracle/formats.hpp"

#include <algorithm>
#include <cmath>
#include <limits>

namespace oracle {
namespace {

struct Layout {
  int digits;        // with the leading one
  int min_exponent;  // of the smallest normal number, as a power of two
  double largest;
};

Layout layout_of(Format format) {
  if (format == Format::kBF16) return {8, -126, 0x1.FEp127};
  if (format == Format::kF16) return {11, -14, 65504.0};
  if (format == Format::kF32) return {24, -126, 0x1.FFFFFEp127};
  return {53, -1022, std::numeric_limits<double>::max()};
}

// The bits of a 16-bit format with `mantissa` stored digits and the given exponent bias.
std::uint16_t encode16(double value, int mantissa, int bias) {
  const std::uint16_t sign = std::signbit(value) ? 0x8000 : 0;
  const int all_ones = (1 << (15 - mantissa)) - 1;
  const auto infinity = static_cast<std::uint16_t>(all_ones << mantissa);
  if (std::isnan(value)) return sign | infinity | (1 << (mantissa - 1));
  if (std::isinf(value)) return sign | infinity;
  if (value == 0) return sign;
  int exponent = 0;
  const double fraction = std::frexp(std::abs(value), &exponent);  // in [0.5, 1)
  const int stored = exponent - 1 + bias;
  if (stored <= 0) {
    return sign | static_cast<std::uint16_t>(std::ldexp(std::abs(value), mantissa + bias - 1));
  }
  const auto digits = static_cast<std::uint16_t>(std::ldexp(2 * fraction - 1, mantissa));
  return sign | static_cast<std::uint16_t>(stored << mantissa) | digits;
}

double decode16(std::uint16_t bits, int mantissa, int bias) {
  const int all_ones = (1 << (15 - mantissa)) - 1;
  const int stored = (bits & 0x7FFF) >> mantissa;
  const int digits = bits & ((1 << mantissa) - 1);
  const double sign = (bits & 0x8000) != 0 ? -1.0 : 1.0;
  if (stored == all_ones && digits != 0) return std::numeric_limits<double>::quiet_NaN();
  if (stored == all_ones) return sign * std::numeric_limits<double>::infinity();
  const int exponent = (stored == 0 ? 1 : stored) - bias - mantissa;
  const int whole = stored == 0 ? digits : digits + (1 << mantissa);
  return sign * std::ldexp(whole, exponent);
}

}  // namespace

double round_to(Format format, double value) {
  if (format == Format::kF64 || value == 0 || !std::isfinite(value)) return value;
  const Layout layout = layout_of(format);
  int exponent = 0;
  std::frexp(value, &exponent);
  const int lowest = layout.min_exponent - layout.digits + 1;
  const int unit = std::max(exponent - layout.digits, lowest);
  const double rounded = std::ldexp(std::nearbyint(std::ldexp(value, -unit)), unit);
  if (std::abs(rounded) > layout.largest) {
    return std::copysign(std::numeric_limits<double>::infinity(), value);
  }
  return rounded;
}

double unit_roundoff(Format format) { return std::ldexp(1.0, -layout_of(format).digits); }

double smallest_step(Format format) {
  const Layout layout = layout_of(format);
  return std::ldexp(1.0, layout.min_exponent - layout.digits + 1);
}

std::uint16_t encode_bf16(double value) { return encode16(value, 7, 127); }
std::uint16_t encode_f16(double value) { return encode16(value, 10, 15); }
double decode_bf16(std::uint16_t bits) { return decode16(bits, 7, 127); }
double decode_f16(std::uint16_t bits) { return decode16(bits, 10, 15); }

}  // namespace oracle
