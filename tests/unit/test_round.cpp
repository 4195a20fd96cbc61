// SPDX-License-Identifier: Apache-2.0
// The 16-bit types, exhaustively, against a conversion by arithmetic in double.
#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <random>

#include "math/round.hpp"

namespace flce {
namespace {

// A format of `mantissa` stored bits and `exponent` bits, decoded by the definition.
double decode(std::uint16_t bits, int mantissa, int exponent) {
  const int bias = (1 << (exponent - 1)) - 1;
  const int e = (bits >> mantissa) & ((1 << exponent) - 1);
  const int m = bits & ((1 << mantissa) - 1);
  const double sign = bits >> 15 ? -1.0 : 1.0;
  if (e == (1 << exponent) - 1) {
    return m ? std::numeric_limits<double>::quiet_NaN()
             : sign * std::numeric_limits<double>::infinity();
  }
  if (e == 0) return sign * std::ldexp(m, 1 - bias - mantissa);
  return sign * std::ldexp((1 << mantissa) + m, e - bias - mantissa);
}

template <typename T>
struct Format;
template <>
struct Format<BF16> {
  static constexpr int kMantissa = 7, kExponent = 8;
};
template <>
struct Format<F16> {
  static constexpr int kMantissa = 10, kExponent = 5;
};

template <typename T>
class Round : public testing::Test {};
using Types = testing::Types<BF16, F16>;
TYPED_TEST_SUITE(Round, Types);

TYPED_TEST(Round, WideningIsExactForEveryValueAndRoundsBack) {
  using F = Format<TypeParam>;
  for (int i = 0; i < 65536; ++i) {
    const auto bits = static_cast<std::uint16_t>(i);
    const float wide = widen(TypeParam{bits});
    const double want = decode(bits, F::kMantissa, F::kExponent);
    if (std::isnan(want)) {
      ASSERT_TRUE(std::isnan(wide)) << i;
      ASSERT_TRUE(std::isnan(widen(round_to<TypeParam>(wide)))) << i;
    } else {
      ASSERT_EQ(wide, want) << i;
      ASSERT_EQ(round_to<TypeParam>(wide).bits, bits) << i;
    }
  }
}

TYPED_TEST(Round, RoundsToTheNearestAndTiesToEven) {
  using F = Format<TypeParam>;
  constexpr float kInf = std::numeric_limits<float>::infinity();
  for (int i = 0; i < 0x7fff; ++i) {
    const auto low = static_cast<std::uint16_t>(i);
    const double a = decode(low, F::kMantissa, F::kExponent);
    const double b = decode(static_cast<std::uint16_t>(i + 1), F::kMantissa, F::kExponent);
    if (!std::isfinite(a) || !std::isfinite(b)) continue;
    const auto middle = static_cast<float>((a + b) / 2);
    if (middle != (a + b) / 2) continue;  // below the float's own range
    ASSERT_EQ(round_to<TypeParam>(middle).bits, low % 2 == 0 ? low : low + 1) << i;
    ASSERT_EQ(round_to<TypeParam>(std::nextafter(middle, kInf)).bits, low + 1) << i;
    ASSERT_EQ(round_to<TypeParam>(std::nextafter(middle, -kInf)).bits, low) << i;
    ASSERT_EQ(round_to<TypeParam>(-middle).bits, round_to<TypeParam>(middle).bits | 0x8000) << i;
  }
}

TEST(RoundF16, OverflowBecomesInfinity) {
  EXPECT_EQ(round_f16(65519.0f).bits, 0x7bff);
  EXPECT_EQ(round_f16(65520.0f).bits, 0x7c00);
  EXPECT_EQ(round_f16(-1e30f).bits, 0xfc00);
}

}  // namespace
}  // namespace flce
