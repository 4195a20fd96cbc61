// SPDX-License-Identifier: Apache-2.0
// The bytes of a file, as the readers take them. Readers work on a span, so that tests and fuzz
// targets need no file; `open_bytes` maps one.
#pragma once

#include <cstddef>
#include <memory>
#include <span>
#include <string>

namespace flce::io {

struct Bytes {
  std::span<const std::byte> span;
  std::string source;                 // the file's name, for messages
  std::shared_ptr<const void> owner;  // keeps `span` alive; null: the caller does
};

// Maps a file read-only, or reads a pipe to its end. The file must not shrink while it is in use.
// Throws Error{kInvalidArgument} naming the path and the system's reason.
Bytes open_bytes(const std::string& path);

}  // namespace flce::io
