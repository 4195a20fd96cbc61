// SPDX-License-Identifier: Apache-2.0
// Writes .npy version 1.0, one file or a folder of them.
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <deque>
#include <filesystem>
#include <set>
#include <string_view>

#include "io/atomic_file.hpp"
#include "io/element_type.hpp"
#include "io/npy.hpp"
#include "io/text.hpp"

namespace flce::io {
namespace {

constexpr std::string_view kMagicAndVersion{"\x93NUMPY\x01\x00", 8};
constexpr std::size_t kDataAlignment = 64;  // numpy's, so that mapped data are aligned

void write_to(AtomicFile& file, const TensorView& tensor) {
  file.write(npy_header(tensor));
  file.write(tensor.bytes);
}

void check_file_names(const std::string& folder, std::span<const TensorView> tensors) {
  std::set<std::string_view> seen;
  for (const TensorView& tensor : tensors) {
    const std::string& name = tensor.name;
    const bool has_separator = name.find('/') != std::string::npos;
    if (name.empty() || has_separator || name.find('\0') != std::string::npos) {
      fail(folder, fmt::format("tensor {} cannot be named NAME.npy in a folder; use names without "
                               "'/' and zero bytes",
                               in_quotes(name)));
    }
    if (!seen.insert(name).second) {
      fail(folder,
           fmt::format("two tensors are named {}; give each its own name", in_quotes(name)));
    }
  }
}

// Makes the folder if it is missing, and removes it again unless it is kept.
class Folder {
 public:
  explicit Folder(std::string path) : path_(std::move(path)) {
    made_ = ::mkdir(path_.c_str(), 0777) == 0;
    if (!made_ && errno != EEXIST) fail_errno(path_, "cannot be made as a folder");
    if (!std::filesystem::is_directory(path_)) fail(path_, "is not a folder; name one");
  }
  ~Folder() {
    if (made_) ::rmdir(path_.c_str());
  }
  Folder(const Folder&) = delete;
  Folder& operator=(const Folder&) = delete;
  void keep() noexcept { made_ = false; }

 private:
  std::string path_;
  bool made_ = false;
};

}  // namespace

std::string npy_header(const TensorView& tensor) {
  check_tensor(tensor);
  std::string dims = fmt::format("{}", fmt::join(tensor.shape, ", "));
  if (tensor.shape.size() == 1) dims += ',';
  const std::string dict = fmt::format("{{'descr': '{}', 'fortran_order': False, 'shape': ({}), }}",
                                       type_of_dtype(tensor.dtype)->npy, dims);
  const std::size_t used = kMagicAndVersion.size() + 2 + dict.size() + 1;
  const std::size_t padding = (kDataAlignment - used % kDataAlignment) % kDataAlignment;
  const std::size_t header_bytes = dict.size() + padding + 1;  // kMaxRank keeps it below 2^16
  std::string header(kMagicAndVersion);
  header += static_cast<char>(header_bytes & 0xff);
  header += static_cast<char>(header_bytes >> 8);
  header += dict;
  header.append(padding, ' ');
  header += '\n';
  return header;
}

void write_npy(const std::string& path, const TensorView& tensor) {
  check_tensor(tensor);
  AtomicFile file(path);
  write_to(file, tensor);
  file.commit();
}

void write_npy_folder(const std::string& folder, std::span<const TensorView> tensors) {
  check_file_names(folder, tensors);
  std::ranges::for_each(tensors, check_tensor);
  Folder made(folder);
  std::deque<AtomicFile> files;
  for (const TensorView& tensor : tensors) {
    write_to(files.emplace_back(folder + "/" + tensor.name + ".npy"), tensor);
    files.back().flush();
  }
  for (AtomicFile& file : files) file.commit();
  made.keep();
}

}  // namespace flce::io
