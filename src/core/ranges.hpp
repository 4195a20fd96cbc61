// SPDX-License-Identifier: Apache-2.0
// Half-open ranges of tokens and of vocabulary rows, and the cutting of [0, total) into chunks.
#pragma once

#include <algorithm>
#include <cstdint>

#include "core/int_math.hpp"

namespace flce {

struct Range {
  std::int64_t begin = 0;
  std::int64_t end = 0;
  constexpr std::int64_t size() const { return end - begin; }
  constexpr bool operator==(const Range&) const = default;
};

// The pieces of [0, total), `step` each, the last one shorter. An empty total has one empty piece,
// so that outputs are cleared by the same code that fills them.
class Pieces {
 public:
  constexpr Pieces(std::int64_t total, std::int64_t step)
      : total_(total), step_(std::max<std::int64_t>(step, 1)) {}

  constexpr std::int64_t count() const {
    return std::max<std::int64_t>(ceil_div(total_, step_), 1);
  }
  constexpr Range operator[](std::int64_t i) const {
    return {std::min(i * step_, total_), std::min((i + 1) * step_, total_)};
  }
  constexpr bool is_first(std::int64_t i) const { return i == 0; }
  constexpr bool is_last(std::int64_t i) const { return i + 1 == count(); }

 private:
  std::int64_t total_;
  std::int64_t step_;
};

}  // namespace flce
