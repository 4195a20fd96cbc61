// SPDX-License-Identifier: Apache-2.0
// Error texts: escaping, clipping and the one place that throws.
#include "io/text.hpp"

#include <fmt/format.h>

#include <cerrno>
#include <system_error>

#include "flce/error.hpp"

namespace flce::io {

void fail(std::string_view source, std::string_view text) {
  throw Error(ErrorCode::kInvalidArgument, fmt::format("{}: {}", source, text));
}

void fail_errno(std::string_view source, std::string_view what) {
  const std::string reason = std::generic_category().message(errno);
  fail(source, fmt::format("{}: {}", what, reason));
}

std::string printable(std::string_view text, std::size_t max_chars) {
  std::string out;
  for (const char c : text) {
    if (out.size() >= max_chars) return out + "...";
    const auto byte = static_cast<unsigned char>(c);
    if (byte >= 0x20 && byte < 0x7f) {
      out += c;
    } else {
      out += fmt::format("\\x{:02x}", byte);
    }
  }
  return out;
}

std::string in_quotes(std::string_view text) { return "'" + printable(text, 60) + "'"; }

std::string shape_text(std::span<const std::int64_t> shape) {
  return fmt::format("({})", fmt::join(shape, ", "));
}

}  // namespace flce::io
