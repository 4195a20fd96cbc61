// SPDX-License-Identifier: Apache-2.0
// Maps files and reads pipes.
#include "io/bytes.hpp"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>

#include <cerrno>
#include <vector>

#include "io/file_descriptor.hpp"
#include "io/text.hpp"

namespace flce::io {
namespace {

Bytes map(const FileDescriptor& file, std::size_t size, const std::string& path) {
  if (size == 0) return {{}, path, nullptr};
  void* memory = ::mmap(nullptr, size, PROT_READ, MAP_PRIVATE, file.get(), 0);
  if (memory == MAP_FAILED) fail_errno(path, "cannot be mapped into memory");
  std::shared_ptr<const void> owner(
      memory, [size](const void* mapped) { ::munmap(const_cast<void*>(mapped), size); });
  return {{static_cast<const std::byte*>(memory), size}, path, std::move(owner)};
}

Bytes read_to_end(const FileDescriptor& file, const std::string& path) {
  constexpr std::size_t kStepBytes = std::size_t{1} << 16;
  auto content = std::make_shared<std::vector<std::byte>>();
  for (std::size_t used = 0;;) {
    content->resize(used + kStepBytes);
    const ssize_t got = ::read(file.get(), content->data() + used, kStepBytes);
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) fail_errno(path, "cannot be read");
    used += static_cast<std::size_t>(got);
    if (got == 0) {
      content->resize(used);
      return {*content, path, content};
    }
  }
}

}  // namespace

Bytes open_bytes(const std::string& path) {
  const FileDescriptor file(::open(path.c_str(), O_RDONLY | O_CLOEXEC));
  if (!file.is_open()) fail_errno(path, "cannot be opened");
  struct stat info {};
  if (::fstat(file.get(), &info) != 0) fail_errno(path, "cannot be examined");
  if (S_ISREG(info.st_mode)) return map(file, static_cast<std::size_t>(info.st_size), path);
  if (S_ISFIFO(info.st_mode)) return read_to_end(file, path);
  fail(path, S_ISDIR(info.st_mode) ? "is a directory; name a file in it"
                                   : "is a device or a socket; name a file or a pipe");
}

}  // namespace flce::io
