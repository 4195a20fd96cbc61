// SPDX-License-Identifier: Apache-2.0
// Files that appear whole or not at all: everything goes to a temporary file in the target's
// folder, is flushed to the disk, and takes the target's name in one step. On an error the
// temporary file is removed and what stood under the name before is untouched. A process that is
// killed leaves its temporary file (".flce-*.tmp") behind.
#pragma once

#include <cstddef>
#include <span>
#include <string>
#include <string_view>

#include "io/file_descriptor.hpp"

namespace flce::io {

// Every member throws Error{kInvalidArgument} naming the path and the system's reason.
class AtomicFile {
 public:
  // `path` may exist as a regular file, or as a link to one: the file behind the link is replaced.
  explicit AtomicFile(const std::string& path);
  ~AtomicFile();
  AtomicFile(const AtomicFile&) = delete;
  AtomicFile& operator=(const AtomicFile&) = delete;

  void write(std::span<const std::byte> bytes);
  void write(std::string_view text);
  void flush();   // everything is on the disk afterwards; nothing can be written any more
  void commit();  // flushes if need be, then gives the file its name

 private:
  std::string path_;       // as the caller wrote it, for messages
  std::string target_;     // with links resolved
  std::string temporary_;  // empty once committed
  FileDescriptor file_;
};

// For JSON, CSV, SVG and other small outputs.
void write_text_atomic(const std::string& path, std::string_view text);

}  // namespace flce::io
