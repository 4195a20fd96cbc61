// SPDX-License-Identifier: Apache-2.0
// Guards around nlohmann's JSON library.
#include "io/json.hpp"

#include <fmt/format.h>

#include "io/text.hpp"

namespace flce::io {

void refuse_zero_bytes(std::string_view json, std::string_view source) {
  if (const std::size_t zero = json.find('\0'); zero != std::string_view::npos) {
    fail(source, fmt::format("the JSON text has a zero byte at {}; is it a text file?", zero));
  }
}

void fail_json(std::string_view source, std::string_view what, const std::exception& error) {
  std::string_view reason = error.what();  // "[json.exception.parse_error.101] parse error at ..."
  if (const std::size_t tag = reason.find("] ");
      reason.starts_with('[') && tag != std::string_view::npos) {
    reason.remove_prefix(tag + 2);
  }
  fail(source, fmt::format("{} is not valid JSON: {}", what, printable(reason)));
}

}  // namespace flce::io
