// SPDX-License-Identifier: Apache-2.0
// Integer helpers; ceil_div and round_up exist here and nowhere else. Sizes are 64-bit; products of
// sizes that may not fit go through `saturating_mul`, so that a plan for N = 1e9, V = 1e7 says "too
// much" instead of wrapping.
#pragma once

#include <cstdint>
#include <limits>

namespace flce {

inline constexpr std::uint64_t kSaturated = std::numeric_limits<std::uint64_t>::max();

// Smallest multiple count: ceil(a / b) for a >= 0, b > 0.
constexpr std::int64_t ceil_div(std::int64_t a, std::int64_t b) { return a / b + (a % b != 0); }

constexpr std::int64_t round_up(std::int64_t a, std::int64_t b) { return ceil_div(a, b) * b; }

constexpr std::uint64_t round_up_bytes(std::uint64_t a, std::uint64_t b) {
  const std::uint64_t rest = a % b;
  return rest == 0 ? a : (a > kSaturated - (b - rest) ? kSaturated : a + (b - rest));
}

constexpr std::uint64_t saturating_mul(std::uint64_t a, std::uint64_t b) {
  std::uint64_t product = 0;
  return __builtin_mul_overflow(a, b, &product) ? kSaturated : product;
}

constexpr std::uint64_t saturating_add(std::uint64_t a, std::uint64_t b) {
  std::uint64_t sum = 0;
  return __builtin_add_overflow(a, b, &sum) ? kSaturated : sum;
}

// Bytes of `rows` x `cols` elements; negative sizes count as 0.
constexpr std::uint64_t bytes_of(std::int64_t rows, std::int64_t cols, std::int64_t element_size) {
  if (rows <= 0 || cols <= 0) return 0;
  const auto u = [](std::int64_t v) { return static_cast<std::uint64_t>(v); };
  return saturating_mul(saturating_mul(u(rows), u(cols)), u(element_size));
}

constexpr std::int64_t next_pow2(std::int64_t a) {
  std::int64_t p = 1;
  while (p < a && p <= std::numeric_limits<std::int64_t>::max() / 2) p *= 2;
  return p;
}

}  // namespace flce
