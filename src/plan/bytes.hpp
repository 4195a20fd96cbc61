// SPDX-License-Identifier: Apache-2.0
// Bytes of a problem's inputs and outputs, read off its fields, and byte counts as text. Knows
// nothing of methods, chunks and devices.
#pragma once

#include <array>
#include <cstdint>

#include "core/dtypes.hpp"
#include "flce/problem.hpp"

namespace flce {

// hidden, weight, target, and what else the problem says is given: bias, weights, temperatures,
// normalizer, upstream gradients.
std::uint64_t input_bytes_of(const Problem& problem);
// The loss, the gradients and the outputs asked for.
std::uint64_t output_bytes_of(const Problem& problem);

// "1.05 GB" without an allocation, for refusal sentences.
using BytesText = std::array<char, 24>;
BytesText bytes_text(std::uint64_t bytes);

}  // namespace flce
