// SPDX-License-Identifier: Apache-2.0
// Reads .safetensors: header length, header, then checks that the tensors tile the data without
// overlap, hole or rest.
#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <numeric>
#include <utility>

#include "io/element_type.hpp"
#include "io/safetensors.hpp"
#include "io/safetensors_header.hpp"
#include "io/text.hpp"

namespace flce::io {
namespace {

constexpr std::size_t kLengthBytes = 8;

std::string_view header_text(const Bytes& file) {
  const std::size_t size = file.span.size();
  if (size < kLengthBytes) {
    fail(file.source, fmt::format("is not a .safetensors file: it has {} bytes, less than the 8 of "
                                  "its header's length",
                                  size));
  }
  std::uint64_t length = 0;
  std::memcpy(&length, file.span.data(), kLengthBytes);
  if (length > kMaxSafetensorsHeaderBytes) {
    fail(file.source, fmt::format("is not a .safetensors file: its header would have {} bytes; the "
                                  "format allows {}",
                                  length, kMaxSafetensorsHeaderBytes));
  }
  if (length > size - kLengthBytes) {
    fail(file.source, fmt::format("says that its header has {} bytes, but {} follow; is it "
                                  "truncated?",
                                  length, size - kLengthBytes));
  }
  const auto* text = reinterpret_cast<const char*>(file.span.data()) + kLengthBytes;
  return {text, static_cast<std::size_t>(length)};
}

std::string range_text(const SafetensorsEntry& entry) {
  return fmt::format("{} [{}, {})", in_quotes(entry.name), entry.begin, entry.end);
}

void check_entry(const SafetensorsEntry& entry, std::uint64_t data_bytes,
                 const std::string& source) {
  const ElementType* type = type_of_name(entry.type);
  if (type == nullptr) {
    fail(source, fmt::format("tensor {} has the unknown dtype {}; supported are {}",
                             in_quotes(entry.name), in_quotes(entry.type), kSupportedNames));
  }
  if (entry.begin > entry.end) {
    fail(source, fmt::format("tensor {} ends before it begins", range_text(entry)));
  }
  if (entry.end > data_bytes) {
    fail(source, fmt::format("tensor {} ends past the {} bytes of data that the file holds; is it "
                             "truncated?",
                             range_text(entry), data_bytes));
  }
  const std::optional<std::int64_t> expected = byte_count(entry.shape, type->bits);
  if (!expected) {
    fail(source, fmt::format("tensor {} has shape {} of {}, which is not a whole number of bytes "
                             "below 2^60",
                             in_quotes(entry.name), shape_text(entry.shape), entry.type));
  }
  if (static_cast<std::uint64_t>(*expected) != entry.end - entry.begin) {
    fail(source, fmt::format("tensor {} has shape {} of {}, which is {} bytes, but its "
                             "data_offsets hold {}",
                             range_text(entry), shape_text(entry.shape), entry.type, *expected,
                             entry.end - entry.begin));
  }
}

}  // namespace

Safetensors::Safetensors(Bytes file) : file_(std::move(file)) {
  const std::string_view text = header_text(file_);
  data_ = file_.span.subspan(kLengthBytes + text.size());
  SafetensorsHeader header = parse_safetensors_header(text, file_.source);
  entries_ = std::move(header.entries);
  metadata_ = std::move(header.metadata);
  std::ranges::sort(entries_, {}, &SafetensorsEntry::name);
  check_names();
  for (const SafetensorsEntry& entry : entries_) check_entry(entry, data_.size(), file_.source);
  check_layout();
}

void Safetensors::check_names() const {
  const auto twice = std::ranges::adjacent_find(entries_, {}, &SafetensorsEntry::name);
  if (twice != entries_.end()) {
    fail(file_.source, fmt::format("the tensor {} stands twice in the header; each needs its own "
                                   "name",
                                   in_quotes(twice->name)));
  }
}

void Safetensors::check_layout() const {
  std::vector<std::size_t> order(entries_.size());
  std::iota(order.begin(), order.end(), std::size_t{0});
  std::ranges::sort(
      order, {}, [this](std::size_t i) { return std::pair(entries_[i].begin, entries_[i].end); });
  std::uint64_t covered = 0;
  const SafetensorsEntry* previous = nullptr;
  for (const std::size_t i : order) {
    const SafetensorsEntry& entry = entries_[i];
    if (entry.begin < covered) {
      fail(file_.source,
           fmt::format("tensors {} and {} overlap", range_text(*previous), range_text(entry)));
    }
    if (entry.begin > covered) {
      fail(file_.source, fmt::format("bytes [{}, {}) of the data belong to no tensor; the format "
                                     "allows no holes",
                                     covered, entry.begin));
    }
    covered = entry.end;
    previous = &entry;
  }
  if (covered != data_.size()) {
    fail(file_.source, fmt::format("{} bytes follow the last tensor; the format allows none",
                                   data_.size() - covered));
  }
}

const SafetensorsEntry* Safetensors::find(std::string_view name) const noexcept {
  const auto found = std::ranges::lower_bound(entries_, name, {}, &SafetensorsEntry::name);
  return found != entries_.end() && found->name == name ? &*found : nullptr;
}

bool Safetensors::contains(std::string_view name) const noexcept { return find(name) != nullptr; }

LoadedTensor Safetensors::tensor(std::string_view name) const {
  const SafetensorsEntry* entry = find(name);
  if (entry == nullptr) {
    constexpr std::size_t kMaxListed = 8;
    std::string known;
    for (std::size_t i = 0; i < std::min(entries_.size(), kMaxListed); ++i) {
      known += (i > 0 ? ", " : "") + in_quotes(entries_[i].name);
    }
    if (entries_.size() > kMaxListed) known += ", ...";
    fail(file_.source,
         fmt::format("has no tensor {}; it has {}: {}", in_quotes(name), entries_.size(), known));
  }
  const ElementType* type = type_of_name(entry->type);
  if (type->dtype == Dtype::kNone) {
    fail(file_.source, fmt::format("tensor {} has dtype {}; supported are {}", in_quotes(name),
                                   entry->type, kSupportedNames));
  }
  TensorView view{entry->name, file_.source, type->dtype, entry->shape,
                  data_.subspan(entry->begin, entry->end - entry->begin)};
  return aligned(std::move(view), file_.owner);
}

Safetensors read_safetensors(const std::string& path) { return Safetensors(open_bytes(path)); }

}  // namespace flce::io
