// SPDX-License-Identifier: Apache-2.0
// Element types as values, the type that sums over one are made in, and which tokens have a target:
// alike for every backend, on host and device.
#pragma once

#include <cstdint>

#include "math/macros.hpp"

namespace flce {

template <typename T>
struct Type {
  using type = T;
};

// The type that sums are made in: double for f64, float for the others.
template <typename T>
struct Accumulation {
  using type = float;
};
template <>
struct Accumulation<double> {
  using type = double;
};
template <typename T>
using AccOf = typename Accumulation<T>::type;

// False for the last `shift` tokens of each sequence (of all tokens where sequence_length is 0).
FLCE_HD inline bool has_target(std::int64_t token, std::int64_t num_tokens, std::int64_t shift,
                               std::int64_t sequence_length) {
  if (shift <= 0) return true;
  const std::int64_t length = sequence_length > 0 ? sequence_length : num_tokens;
  return shift < length - token % length;
}

}  // namespace flce
