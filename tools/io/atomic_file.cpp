// SPDX-License-Identifier: Apache-2.0
// File without a name, fsync, name, rename.
#include "io/atomic_file.hpp"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>

#include <algorithm>
#include <array>
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

std::string temporary_name(const std::string& folder) {
  std::random_device random;
  return fmt::format("{}/.flce-{:08x}{:08x}.tmp", folder, random(), random());
}

constexpr mode_t kAll = S_IRUSR | S_IWUSR | S_IRGRP | S_IWGRP | S_IROTH | S_IWOTH;

// Where a link to an open file can be made from.
std::array<char, 32> link_of(const FileDescriptor& file) {
  std::array<char, 32> link;
  std::snprintf(link.data(), link.size(), "/proc/self/fd/%d", file.get());
  return link;
}

// A file in the folder that has no name yet and is gone with its process. Not open where the file
// system has no such files, or where no name could be given later.
FileDescriptor create_nameless([[maybe_unused]] const std::string& folder) {
#if defined(O_TMPFILE)
  FileDescriptor file(::open(folder.c_str(), O_WRONLY | O_TMPFILE | O_CLOEXEC, kAll));
  if (file.is_open() && ::access(link_of(file).data(), F_OK) == 0) return file;
#endif
  return FileDescriptor(-1);
}

// The mode follows the umask, as for any new file, unless the target has one to keep.
FileDescriptor create(const std::string& folder, const std::string& temporary,
                      const std::string& target, const std::string& path, bool may_be_nameless,
                      bool& has_name) {
  FileDescriptor file = may_be_nameless ? create_nameless(folder) : FileDescriptor(-1);
  has_name = !file.is_open();
  if (has_name) {
    file = FileDescriptor(::open(temporary.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, kAll));
  }
  if (!file.is_open()) {
    fail_errno(path, fmt::format("cannot be written: no file can be made in folder '{}'", folder));
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

// A rename must not replace a device and the like.
std::string replaced_file(const std::string& path, const std::string& source) {
  if (path.empty()) fail("''", "is not a file name");
  struct stat info {};
  if (::lstat(path.c_str(), &info) != 0) {
    if (errno == ENOENT) return path;
    fail_errno(source, "cannot be written");
  }
  std::string target = path;
  if (S_ISLNK(info.st_mode)) {
    const std::unique_ptr<char, decltype(&std::free)> real(::realpath(path.c_str(), nullptr),
                                                           &std::free);
    if (real == nullptr) fail_errno(source, "is a symbolic link that cannot be followed");
    target = real.get();
    if (::stat(target.c_str(), &info) != 0) fail_errno(source, "cannot be written");
  }
  if (S_ISDIR(info.st_mode)) fail(source, "cannot be written: it is a directory; name a file");
  if (!S_ISREG(info.st_mode)) {
    fail(source, "cannot be written: it is a device, a pipe or a socket; name a regular file");
  }
  return target;
}

AtomicFile::AtomicFile(const std::string& path, bool may_be_nameless)
    : path_(path),
      target_(replaced_file(path, path)),
      folder_(folder_of(target_)),
      temporary_(temporary_name(folder_)),
      file_(create(folder_, temporary_, target_, path, may_be_nameless, has_name_)) {}

AtomicFile::~AtomicFile() {
  if (has_name_) ::unlink(temporary_.c_str());
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
  if (::fsync(file_.get()) != 0) fail_errno(path_, "cannot be flushed to the disk");
}

void AtomicFile::commit() {
  flush();
  if (!has_name_) {
    if (::linkat(AT_FDCWD, link_of(file_).data(), AT_FDCWD, temporary_.c_str(),
                 AT_SYMLINK_FOLLOW) != 0) {
      fail_errno(path_, "cannot be given a name");
    }
    has_name_ = true;
  }
  if (!file_.close()) fail_errno(path_, "cannot be written");
  if (std::rename(temporary_.c_str(), target_.c_str()) != 0) {
    fail_errno(path_, "cannot be given its name");
  }
  has_name_ = false;
  sync_folder(folder_);
}

void write_text_atomic(const std::string& path, std::string_view text) {
  AtomicFile file(path);
  file.write(text);
  file.commit();
}

}  // namespace flce::io
