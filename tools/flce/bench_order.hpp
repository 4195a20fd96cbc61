// SPDX-License-Identifier: Apache-2.0
// In which order the variants of `flce bench` take their turns.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

namespace flce::cli {

// 0, 1, ..., count - 1 in an order that depends on seed and round alone, on every machine.
std::vector<std::size_t> shuffled_order(std::size_t count, std::uint64_t seed, std::int64_t round);

}  // namespace flce::cli
