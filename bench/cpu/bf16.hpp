// SPDX-License-Identifier: Apache-2.0
// bf16 as its bits, in plain loops that the compiler vectorises. Finite numbers only. Static: each
// instruction set keeps its own copy.
#pragma once

#include <cstdint>
#include <cstring>

namespace flce::bench {

static inline float bf16_to_f32(std::uint16_t bits) {
  const std::uint32_t wide = static_cast<std::uint32_t>(bits) << 16;
  float value;
  std::memcpy(&value, &wide, sizeof value);
  return value;
}

static inline std::uint16_t f32_to_bf16(float value) {  // to nearest, ties to even
  std::uint32_t bits;
  std::memcpy(&bits, &value, sizeof bits);
  bits += 0x7fffU + ((bits >> 16) & 1U);
  return static_cast<std::uint16_t>(bits >> 16);
}

}  // namespace flce::bench
