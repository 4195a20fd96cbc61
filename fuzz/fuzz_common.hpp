// SPDX-License-Identifier: Apache-2.0
// What every fuzz target promises: on any input a reader returns a value or throws flce::Error with
// a text. Another exception escapes and ends the process, as does a failed `demand`.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <span>

#include "flce/error.hpp"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size);

namespace flce::fuzz {

inline void demand(bool holds, const char* what) {
  if (holds) return;
  std::fprintf(stderr, "broken: %s\n", what);
  std::abort();
}

template <typename Body>
void only_throws_error(Body&& body) {
  try {
    body();
  } catch (const Error& error) {
    demand(error.code() != ErrorCode::kOk, "an Error has a code");
    demand(std::strlen(error.what()) > 0, "an Error has a text");
  }
}

// Reads every byte, so that a sanitizer sees a span that reaches too far.
inline void touch(std::span<const std::byte> bytes) {
  unsigned sum = 0;
  for (const std::byte byte : bytes) sum += std::to_integer<unsigned>(byte);
  volatile unsigned sink = sum;
  static_cast<void>(sink);
}

}  // namespace flce::fuzz
