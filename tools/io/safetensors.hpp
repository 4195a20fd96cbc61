// SPDX-License-Identifier: Apache-2.0
// .safetensors files: 8 bytes header length, a JSON header, then the tensors' bytes without holes.
// Everything is checked when the file is parsed, but no tensor is touched before it is asked for.
#pragma once

#include <cstdint>
#include <map>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "io/bytes.hpp"
#include "io/tensor.hpp"

namespace flce::io {

inline constexpr std::uint64_t kMaxSafetensorsHeaderBytes = 100'000'000;  // the format's limit
inline constexpr std::size_t kMaxSafetensorsMetadata = 100'000;           // entries; our limit

using Metadata = std::map<std::string, std::string, std::less<>>;

struct SafetensorsEntry {
  std::string name;
  std::string type;  // the file's word: "F32", also types that FLCE does not compute with
  Shape shape;
  std::uint64_t begin = 0;  // bytes [begin, end) of the data
  std::uint64_t end = 0;
};

class Safetensors {
 public:
  // Throws Error{kInvalidArgument} naming the file and the tensor or key that is wrong.
  explicit Safetensors(Bytes file);

  const std::vector<SafetensorsEntry>& entries() const noexcept { return entries_; }  // by name
  const Metadata& metadata() const noexcept { return metadata_; }
  bool contains(std::string_view name) const noexcept;

  // A view into the file that shares its owner; a copy only where the bytes are not aligned to the
  // element size. Throws Error{kInvalidArgument} for a name that the file lacks (listing what it
  // has) and for a type that FLCE does not compute with.
  LoadedTensor tensor(std::string_view name) const;

 private:
  const SafetensorsEntry* find(std::string_view name) const noexcept;
  void check_names() const;
  void check_layout() const;

  Bytes file_;
  std::span<const std::byte> data_;
  std::vector<SafetensorsEntry> entries_;
  Metadata metadata_;
};

Safetensors read_safetensors(const std::string& path);

// Writes all tensors, the widest element type first so that each is aligned; see atomic_file.hpp
// for what "atomic" means. Names are UTF-8, each its own, and not "__metadata__".
void write_safetensors(const std::string& path, std::span<const TensorView> tensors,
                       const Metadata& metadata = {});

// The whole file in memory, for tests and fuzz targets.
std::vector<std::byte> encode_safetensors(std::span<const TensorView> tensors,
                                          const Metadata& metadata = {});

}  // namespace flce::io
