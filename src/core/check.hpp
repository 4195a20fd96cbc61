// SPDX-License-Identifier: Apache-2.0
// Two words for two prices: `require` always runs and speaks to the caller of the library; `expect`
// guards what an inner room relies on and is gone in release builds.
#pragma once

#include <fmt/format.h>

#include <cassert>
#include <utility>

#include "flce/error.hpp"

namespace flce {

template <typename... Args>
[[noreturn]] void fail(ErrorCode code, fmt::format_string<Args...> format, Args&&... args) {
  throw Error(code, fmt::format(format, std::forward<Args>(args)...));
}

template <typename... Args>
void require(bool holds, ErrorCode code, fmt::format_string<Args...> format, Args&&... args) {
  if (!holds) [[unlikely]]
    throw Error(code, fmt::format(format, std::forward<Args>(args)...));
}

template <typename... Args>
void require(bool holds, fmt::format_string<Args...> format, Args&&... args) {
  if (!holds) [[unlikely]]
    throw Error(ErrorCode::kInvalidArgument, fmt::format(format, std::forward<Args>(args)...));
}

inline void expect([[maybe_unused]] bool holds) { assert(holds); }

}  // namespace flce
