// SPDX-License-Identifier: Apache-2.0
// Writes .safetensors in the order of the reference implementation: wide elements first, then by
// name, the header padded with spaces so that the data begin at a multiple of 8.
#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <nlohmann/json.hpp>
#include <set>

#include "io/atomic_file.hpp"
#include "io/element_type.hpp"
#include "io/json.hpp"
#include "io/safetensors.hpp"
#include "io/text.hpp"

namespace flce::io {
namespace {

constexpr std::string_view kMetadataKey = "__metadata__";

void check_names(std::span<const TensorView> tensors, std::string_view source) {
  std::set<std::string_view> seen;
  for (const TensorView& tensor : tensors) {
    if (tensor.name == kMetadataKey) {
      fail(source, "a tensor cannot be named '__metadata__', which the format keeps for itself");
    }
    if (!seen.insert(tensor.name).second) {
      fail(source,
           fmt::format("two tensors are named {}; give each its own name", in_quotes(tensor.name)));
    }
  }
}

std::vector<const TensorView*> in_file_order(std::span<const TensorView> tensors) {
  std::vector<const TensorView*> order;
  for (const TensorView& tensor : tensors) order.push_back(&tensor);
  std::ranges::sort(order, {}, [](const TensorView* tensor) {
    return std::pair(-type_of_dtype(tensor->dtype)->bits, std::string_view(tensor->name));
  });
  return order;
}

std::string dump(const nlohmann::json& json, std::string_view source) {
  try {
    return json.dump();
  } catch (const nlohmann::json::exception& error) {
    fail_json(source, "a name or the metadata, which must be UTF-8,", error);
  }
}

// Length and header: everything before the data.
std::string encode_header(const std::vector<const TensorView*>& order, const Metadata& metadata,
                          std::string_view source) {
  nlohmann::json json = nlohmann::json::object();
  if (!metadata.empty()) json[std::string(kMetadataKey)] = metadata;
  std::uint64_t begin = 0;
  for (const TensorView* tensor : order) {
    const std::uint64_t end = begin + tensor->bytes.size();
    json[tensor->name] = {{"dtype", std::string(type_of_dtype(tensor->dtype)->name)},
                          {"shape", tensor->shape},
                          {"data_offsets", {begin, end}}};
    begin = end;
  }
  std::string header = dump(json, source);
  header.append((8 - header.size() % 8) % 8, ' ');
  const std::uint64_t length = header.size();
  if (length > kMaxSafetensorsHeaderBytes) {
    fail(source, fmt::format("its header would have {} bytes; the format allows {}; write fewer "
                             "tensors or less metadata",
                             length, kMaxSafetensorsHeaderBytes));
  }
  std::string prefix(sizeof(length), '\0');
  std::memcpy(prefix.data(), &length, sizeof(length));
  return prefix + header;
}

struct Prepared {
  std::vector<const TensorView*> order;
  std::string header;
};

Prepared prepare(std::span<const TensorView> tensors, const Metadata& metadata,
                 std::string_view source) {
  std::ranges::for_each(tensors, check_tensor);
  check_names(tensors, source);
  if (metadata.size() > kMaxSafetensorsMetadata) {
    fail(source, fmt::format("the metadata have {} keys; write at most {}", metadata.size(),
                             kMaxSafetensorsMetadata));
  }
  Prepared prepared{in_file_order(tensors), {}};
  prepared.header = encode_header(prepared.order, metadata, source);
  return prepared;
}

}  // namespace

void write_safetensors(const std::string& path, std::span<const TensorView> tensors,
                       const Metadata& metadata) {
  const Prepared prepared = prepare(tensors, metadata, path);
  AtomicFile file(path);
  file.write(prepared.header);
  for (const TensorView* tensor : prepared.order) file.write(tensor->bytes);
  file.commit();
}

std::vector<std::byte> encode_safetensors(std::span<const TensorView> tensors,
                                          const Metadata& metadata) {
  const Prepared prepared = prepare(tensors, metadata, "safetensors in memory");
  const auto header = std::as_bytes(std::span(prepared.header));
  std::vector<std::byte> out(header.begin(), header.end());
  for (const TensorView* tensor : prepared.order) {
    out.insert(out.end(), tensor->bytes.begin(), tensor->bytes.end());
  }
  return out;
}

}  // namespace flce::io
