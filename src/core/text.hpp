// SPDX-License-Identifier: Apache-2.0
// Text into a fixed array, so that a Plan stays a plain value and planning allocates nothing.
#pragma once

#include <fmt/format.h>

#include <array>
#include <cstddef>
#include <string_view>
#include <utility>

namespace flce {

// Writes the formatted text, cut to fit and zero-terminated.
template <std::size_t Size, typename... Args>
void write_text(std::array<char, Size>& text, fmt::format_string<Args...> format, Args&&... args) {
  const auto result = fmt::format_to_n(text.data(), Size - 1, format, std::forward<Args>(args)...);
  text[result.size < Size ? result.size : Size - 1] = '\0';
}

template <std::size_t Size>
std::string_view view_text(const std::array<char, Size>& text) {
  return {text.data()};
}

}  // namespace flce
