// SPDX-License-Identifier: Apache-2.0
// How this folder words its errors: "FILE: what was wrong, what was given; what would work". Text
// that comes from a file is escaped and clipped first, for it may be anything and of any length.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>

namespace flce::io {

// Throws Error{kInvalidArgument} with the text "SOURCE: TEXT".
[[noreturn]] void fail(std::string_view source, std::string_view text);

// The same for a failed system call: "SOURCE: WHAT: <errno as text>". Reads errno first.
[[noreturn]] void fail_errno(std::string_view source, std::string_view what);

// Plain ASCII: other bytes become \xNN, and what is longer than `max_chars` ends in "...".
std::string printable(std::string_view text, std::size_t max_chars = 200);

// `text` in single quotes, printable and short.
std::string in_quotes(std::string_view text);

// "(3, 4)", "(3)", "()".
std::string shape_text(std::span<const std::int64_t> shape);

}  // namespace flce::io
