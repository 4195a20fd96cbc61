// SPDX-License-Identifier: Apache-2.0
// The event handler for the header's JSON. It knows at each moment in which of six places it is and
// refuses every event that the format does not have there.
#include "io/safetensors_header.hpp"

#include <fmt/format.h>

#include <limits>
#include <nlohmann/json.hpp>
#include <utility>

#include "io/element_type.hpp"
#include "io/json.hpp"
#include "io/text.hpp"

namespace flce::io {
namespace {

using Json = nlohmann::json;

class HeaderEvents final : public nlohmann::json_sax<Json> {
 public:
  explicit HeaderEvents(const std::string& source) : source_(source) {}
  SafetensorsHeader take() { return std::move(header_); }

  bool null() override { refuse("null"); }
  bool boolean(bool value) override { refuse(value ? "true" : "false"); }
  bool number_float(double, const std::string& digits) override { refuse(printable(digits, 40)); }
  bool binary(Json::binary_t&) override { refuse("binary data"); }
  bool number_integer(std::int64_t value) override {
    if (value < 0) refuse(fmt::format("{}", value));
    return number_unsigned(static_cast<std::uint64_t>(value));
  }

  bool number_unsigned(std::uint64_t value) override {
    if (place_ == Place::kShape) {
      if (value > std::numeric_limits<std::int64_t>::max()) refuse(fmt::format("{}", value));
      if (entry_.shape.size() == kMaxRank) {
        fail(source_, fmt::format("{} has more than {} dimensions", where(), kMaxRank));
      }
      entry_.shape.push_back(static_cast<std::int64_t>(value));
    } else if (place_ == Place::kOffsets && num_offsets_ < 2) {
      (num_offsets_++ == 0 ? entry_.begin : entry_.end) = value;
    } else {
      refuse(fmt::format("{}", value));
    }
    return true;
  }

  bool string(std::string& value) override {
    if (place_ == Place::kMetadata) {
      header_.metadata.insert_or_assign(key_, std::move(value));
    } else if (place_ == Place::kTensor && key_ == "dtype") {
      entry_.type = std::move(value);
    } else {
      refuse("the text " + in_quotes(value));
    }
    return true;
  }

  bool start_object(std::size_t) override {
    if (place_ == Place::kStart) {
      place_ = Place::kTop;
    } else if (place_ == Place::kTop && key_ == "__metadata__") {
      if (std::exchange(has_metadata_, true)) fail(source_, "the key '__metadata__' stands twice");
      place_ = Place::kMetadata;
    } else if (place_ == Place::kTop) {
      entry_ = {};
      entry_.name = key_;
      has_dtype_ = has_shape_ = has_offsets_ = false;
      place_ = Place::kTensor;
    } else {
      refuse("an object");
    }
    return true;
  }

  bool key(std::string& value) override {
    key_ = std::move(value);
    if (place_ == Place::kMetadata) check_metadata_key();
    if (place_ == Place::kTensor) check_tensor_key();
    return true;
  }

  bool end_object() override {
    if (place_ == Place::kTensor) {
      if (!has_dtype_ || !has_shape_ || !has_offsets_) {
        fail(source_, fmt::format("tensor {} lacks a key; it needs 'dtype', 'shape' and "
                                  "'data_offsets'",
                                  in_quotes(entry_.name)));
      }
      header_.entries.push_back(std::move(entry_));
    }
    place_ = place_ == Place::kTop ? Place::kEnd : Place::kTop;
    return true;
  }

  bool start_array(std::size_t) override {
    if (place_ == Place::kTensor && key_ == "shape") {
      place_ = Place::kShape;
    } else if (place_ == Place::kTensor && key_ == "data_offsets") {
      place_ = Place::kOffsets;
      num_offsets_ = 0;
    } else {
      refuse("a list");
    }
    return true;
  }

  bool end_array() override {
    if (place_ == Place::kOffsets && num_offsets_ != 2) {
      fail(source_, fmt::format("{} has {} numbers; expected 2", where(), num_offsets_));
    }
    place_ = Place::kTensor;
    return true;
  }

  bool parse_error(std::size_t, const std::string&, const Json::exception& error) override {
    fail_json(source_, "the header", error);
  }

 private:
  enum class Place { kStart, kTop, kMetadata, kTensor, kShape, kOffsets, kEnd };

  void check_metadata_key() {
    if (header_.metadata.contains(key_)) {
      fail(source_, fmt::format("the metadata have the key {} twice", in_quotes(key_)));
    }
    if (header_.metadata.size() == kMaxSafetensorsMetadata) {
      fail(source_, fmt::format("the metadata have more than {} keys", kMaxSafetensorsMetadata));
    }
  }

  void check_tensor_key() {
    bool* const seen = key_ == "dtype"          ? &has_dtype_
                       : key_ == "shape"        ? &has_shape_
                       : key_ == "data_offsets" ? &has_offsets_
                                                : nullptr;
    if (seen == nullptr) {
      fail(source_, fmt::format("tensor {} has the key {}; known are 'dtype', 'shape' and "
                                "'data_offsets'",
                                in_quotes(entry_.name), in_quotes(key_)));
    }
    if (std::exchange(*seen, true)) {
      fail(source_,
           fmt::format("tensor {} has the key {} twice", in_quotes(entry_.name), in_quotes(key_)));
    }
  }

  std::string where() const {
    switch (place_) {
      case Place::kStart:
      case Place::kEnd:
        return "the header";
      case Place::kTop:
        return fmt::format("the header's {}", in_quotes(key_));
      case Place::kMetadata:
        return fmt::format("the metadata's {}", in_quotes(key_));
      default:
        return fmt::format("{} of tensor {}", in_quotes(key_), in_quotes(entry_.name));
    }
  }

  std::string expected() const {
    if (place_ == Place::kMetadata) return "a text";
    if (place_ == Place::kShape) return "whole numbers from 0 to 2^63 - 1";
    if (place_ == Place::kOffsets) return "2 whole numbers, begin and end";
    if (place_ != Place::kTensor) return "an object";
    return key_ == "dtype" ? "a text" : "a list of whole numbers";
  }

  [[noreturn]] void refuse(std::string_view got) const {
    fail(source_, fmt::format("{}: expected {}, got {}", where(), expected(), got));
  }

  const std::string& source_;
  SafetensorsHeader header_;
  Place place_ = Place::kStart;
  std::string key_;
  SafetensorsEntry entry_;
  int num_offsets_ = 0;
  bool has_metadata_ = false;
  bool has_dtype_ = false;
  bool has_shape_ = false;
  bool has_offsets_ = false;
};

}  // namespace

SafetensorsHeader parse_safetensors_header(std::string_view json, const std::string& source) {
  if (!json.starts_with('{')) {
    fail(source,
         fmt::format("the header starts with {}; expected '{{'", in_quotes(json.substr(0, 8))));
  }
  refuse_zero_bytes(json, source);
  HeaderEvents events(source);
  Json::sax_parse(json.begin(), json.end(), &events);
  return events.take();
}

}  // namespace flce::io
