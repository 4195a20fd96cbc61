// SPDX-License-Identifier: Apache-2.0
// Files that appear whole or not at all: everything goes to a file without a name in the target's
// folder, is flushed to the disk, and takes the target's name in one step, for which it has a name
// of its own (".flce-*.tmp") for a moment. On an error that name is removed and what stood under
// the target's is untouched. A process that is killed leaves nothing behind, unless it was in that
// moment; where the file system has no files without a name, the file has that name from the start.
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
  // may_be_nameless false: as where the file system has no files without a name.
  explicit AtomicFile(const std::string& path, bool may_be_nameless = true);
  ~AtomicFile();
  AtomicFile(const AtomicFile&) = delete;
  AtomicFile& operator=(const AtomicFile&) = delete;

  void write(std::span<const std::byte> bytes);
  void write(std::string_view text);
  void flush();   // everything is on the disk afterwards
  void commit();  // flushes, then gives the file its name; needs no memory unless it fails

 private:
  std::string path_;       // as the caller wrote it, for messages
  std::string target_;     // with links resolved
  std::string folder_;     // of the target
  std::string temporary_;  // a name that nothing has, beside the target
  bool has_name_ = false;  // whether the file has that name now
  FileDescriptor file_;
};

// The file that AtomicFile(path) would replace or make: `path`, or what is behind the link. Throws
// what AtomicFile would, with `source` in front.
std::string replaced_file(const std::string& path, const std::string& source);

// For JSON, CSV, SVG and other small outputs.
void write_text_atomic(const std::string& path, std::string_view text);

}  // namespace flce::io
