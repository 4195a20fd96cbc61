// SPDX-License-Identifier: Apache-2.0
// Temporary file, fsync, rename.
#include "io/atomic_file.hpp"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <memory>
#include <random>

#include "io/text.hpp"

namespace flce::io {
namespace {

std::string folder_of(const std::string& target) {
  const std::string folder = std::filesystem::path(target).parent_path().string();
  return folder.empty() ? "." : folder;
}

// The name that the rename will replace. Refuses what a rename must not replace, such as a device.
std::string resolve(const std::string& path) {
  if (path.empty()) fail("''", "is not a file name");
  struct stat info {};
  if (::lstat(path.c_str(), &info) != 0) {
    if (errno == ENOENT) return path;
    fail_errno(path, "cannot be written");
  }
  std::string target = path;
  if (S_ISLNK(info.st_mode)) {
    const std::unique_ptr<char, decltype(&std::free)> real(::realpath(path.c_str(), nullptr),
                                                           &std::free);
    if (real == nullptr) fail_errno(path, "is a symbolic link that cannot be followed");
    target = real.get();
    if (::stat(target.c_str(), &info) != 0) fail_errno(path, "cannot be written");
  }
  if (S_ISDIR(info.st_mode)) fail(path, "cannot be written: it is a directory; name a file");
  if (!S_ISREG(info.st_mode)) {
    fail(path, "cannot be written: it is a device, a pipe or a socket; name a regular file");
  }
  return target;
}

std::string temporary_name(const std::string& target) {
  std::random_device random;
  return fmt::format("{}/.flce-{:08x}{:08x}.tmp", folder_of(target), random(), random());
}

// The mode follows the umask, as for any new file, unless the target has one to keep.
FileDescriptor create(const std::string& temporary, const std::string& target,
                      const std::string& path) {
  FileDescriptor file(::open(temporary.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC,
                             S_IRUSR | S_IWUSR | S_IRGRP | S_IWGRP | S_IROTH | S_IWOTH));
  if (!file.is_open()) {
    fail_errno(path, fmt::format("cannot be written: no file can be made in folder '{}'",
                                 folder_of(target)));
  }
  struct stat info {};
  if (::stat(target.c_str(), &info) == 0) {
    // A file system without modes refuses; the file is as good without.
    [[maybe_unused]] const int status = ::fchmod(file.get(), info.st_mode & 0777);
  }
  return file;
}

// Makes the rename itself durable. Some file systems cannot; the file is whole all the same.
void sync_folder(const std::string& folder) {
  const FileDescriptor handle(::open(folder.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  if (handle.is_open()) ::fsync(handle.get());
}

}  // namespace

AtomicFile::AtomicFile(const std::string& path)
    : path_(path),
      target_(resolve(path)),
      temporary_(temporary_name(target_)),
      file_(create(temporary_, target_, path)) {}

AtomicFile::~AtomicFile() {
  if (!temporary_.empty()) ::unlink(temporary_.c_str());
}

void AtomicFile::write(std::span<const std::byte> bytes) {
  constexpr std::size_t kMaxStep = std::size_t{1} << 30;  // Linux writes at most 2 GiB a call
  while (!bytes.empty()) {
    const ssize_t put = ::write(file_.get(), bytes.data(), std::min(bytes.size(), kMaxStep));
    if (put < 0 && errno == EINTR) continue;
    if (put < 0) fail_errno(path_, "cannot be written");
    bytes = bytes.subspan(static_cast<std::size_t>(put));
  }
}

void AtomicFile::write(std::string_view text) {
  write(std::as_bytes(std::span(text.data(), text.size())));
}

void AtomicFile::flush() {
  if (!file_.is_open()) return;
  if (::fsync(file_.get()) != 0) fail_errno(path_, "cannot be flushed to the disk");
  if (!file_.close()) fail_errno(path_, "cannot be written");
}

void AtomicFile::commit() {
  flush();
  if (std::rename(temporary_.c_str(), target_.c_str()) != 0) {
    fail_errno(path_, "cannot be given its name");
  }
  temporary_.clear();
  sync_folder(folder_of(target_));
}

void write_text_atomic(const std::string& path, std::string_view text) {
  AtomicFile file(path);
  file.write(text);
  file.commit();
}

}  // namespace flce::io
