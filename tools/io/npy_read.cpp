// SPDX-License-Identifier: Apache-2.0
// Reads .npy: magic, version, header length, a Python dict literal, then the data to the file's
// end. The dict is read by a parser for exactly this literal: no recursion, no allocation but the
// shape, which is bounded.
#include <fmt/format.h>

#include <charconv>
#include <cstring>
#include <filesystem>
#include <optional>
#include <string_view>
#include <utility>

#include "io/element_type.hpp"
#include "io/npy.hpp"
#include "io/text.hpp"

namespace flce::io {
namespace {

constexpr std::string_view kMagic = "\x93NUMPY";

struct Header {
  std::optional<std::string_view> descr;
  std::optional<bool> fortran_order;
  std::optional<Shape> shape;
};

class HeaderParser {
 public:
  HeaderParser(std::string_view text, std::string_view source) : text_(text), source_(source) {}

  Header parse() {
    Header header;
    expect('{', "the header's dict");
    while (!accept('}')) {
      parse_item(header);
      if (!accept(',')) {
        expect('}', "a comma or the end of the header's dict");
        break;
      }
    }
    skip_space();
    if (pos_ != text_.size()) fail_here("nothing after the header's dict");
    if (!header.descr || !header.fortran_order || !header.shape) {
      fail(source_, "the header lacks a key; it needs 'descr', 'fortran_order' and 'shape'");
    }
    return header;
  }

 private:
  void parse_item(Header& header) {
    const std::string_view key = parse_string("a key");
    expect(':', "a colon");
    if (key == "descr") {
      refuse_second(key, header.descr.has_value());
      header.descr = parse_descr();
    } else if (key == "fortran_order") {
      refuse_second(key, header.fortran_order.has_value());
      header.fortran_order = parse_bool();
    } else if (key == "shape") {
      refuse_second(key, header.shape.has_value());
      header.shape = parse_shape();
    } else {
      fail(source_, fmt::format("the header has the key {}; known are 'descr', 'fortran_order' and "
                                "'shape'",
                                in_quotes(key)));
    }
  }

  std::string_view parse_descr() {
    skip_space();
    if (pos_ < text_.size() && text_[pos_] == '[') {
      fail(source_, "is a structured array; save each of its fields as an array of its own");
    }
    return parse_string("the type's name");
  }

  bool parse_bool() {
    skip_space();
    for (const auto& [word, value] : {std::pair{"True", true}, std::pair{"False", false}}) {
      if (text_.substr(pos_).starts_with(word)) {
        pos_ += std::strlen(word);
        return value;
      }
    }
    fail_here("True or False");
  }

  Shape parse_shape() {
    Shape shape;
    expect('(', "the shape");
    while (!accept(')')) {
      if (shape.size() == kMaxRank) {
        fail(source_, fmt::format("the shape has more than {} dimensions", kMaxRank));
      }
      shape.push_back(parse_dimension());
      if (!accept(',')) {
        expect(')', "a comma or the end of the shape");
        break;
      }
    }
    return shape;
  }

  std::int64_t parse_dimension() {
    skip_space();
    std::int64_t dim = 0;
    const char* const end = text_.data() + text_.size();
    const auto [stop, status] = std::from_chars(text_.data() + pos_, end, dim);
    if (status == std::errc::result_out_of_range) fail_here("a dimension below 2^63");
    if (status != std::errc{}) fail_here("a whole number");
    if (dim < 0) fail_here("a dimension >= 0");
    pos_ = static_cast<std::size_t>(stop - text_.data());
    if (pos_ < text_.size() && text_[pos_] == 'L') ++pos_;  // Python 2 wrote (3L, 4L)
    return dim;
  }

  std::string_view parse_string(std::string_view what) {
    skip_space();
    const char quote = pos_ < text_.size() ? text_[pos_] : '\0';
    if (quote != '\'' && quote != '"') fail_here(fmt::format("{} in quotes", what));
    const std::size_t end = text_.find(quote, pos_ + 1);
    if (end == std::string_view::npos) fail_here(fmt::format("{} in closed quotes", what));
    const std::string_view value = text_.substr(pos_ + 1, end - pos_ - 1);
    pos_ = end + 1;
    return value;
  }

  void skip_space() {
    const std::size_t next = text_.find_first_not_of(" \t\r\n", pos_);
    pos_ = next == std::string_view::npos ? text_.size() : next;
  }

  bool accept(char wanted) {
    skip_space();
    if (pos_ == text_.size() || text_[pos_] != wanted) return false;
    ++pos_;
    return true;
  }

  void expect(char wanted, std::string_view what) {
    if (!accept(wanted)) fail_here(fmt::format("{} ('{}')", what, wanted));
  }

  void refuse_second(std::string_view key, bool seen) const {
    if (seen) fail(source_, fmt::format("the header has the key {} twice", in_quotes(key)));
  }

  [[noreturn]] void fail_here(std::string_view expected) const {
    const std::string rest = pos_ == text_.size() ? "its end" : in_quotes(text_.substr(pos_, 40));
    fail(source_, fmt::format("the header is malformed at its byte {}: expected {}, got {}", pos_,
                              expected, rest));
  }

  std::string_view text_;
  std::string_view source_;
  std::size_t pos_ = 0;
};

const ElementType& element_type(std::string_view descr, RawPairs raw_pairs,
                                std::string_view source) {
  if (descr == "<V2" || descr == "|V2") {
    if (raw_pairs == RawPairs::kAreBf16) return *type_of_dtype(Dtype::kBF16);
    fail(source, fmt::format("has elements of 2 raw bytes ({}), which is how bfloat16 is saved; "
                             "say that it is bf16, or save it as float32",
                             in_quotes(descr)));
  }
  if (const ElementType* type = type_of_descr(descr)) return *type;
  if (descr.starts_with('>')) {
    fail(source, fmt::format("is big-endian ({}); save array.astype(array.dtype.newbyteorder('<'))",
                             in_quotes(descr)));
  }
  fail(source, fmt::format("has elements of type {}; supported are '<f8', '<f4', '<f2', '<i8', "
                           "'<i4', and '<V2' for bf16",
                           in_quotes(descr)));
}

struct Parts {
  std::string_view header;
  std::span<const std::byte> data;
};

Parts split(const Bytes& file) {
  const std::string_view text(reinterpret_cast<const char*>(file.span.data()), file.span.size());
  constexpr std::size_t kVersionEnd = kMagic.size() + 2;
  if (!text.starts_with(kMagic)) {
    fail(file.source,
         "is not a .npy file: it does not start with \\x93NUMPY; save it by numpy.save");
  }
  if (text.size() < kVersionEnd) {
    fail(file.source,
         fmt::format("ends at byte {}, inside its first fields; is it truncated?", text.size()));
  }
  const int major = static_cast<unsigned char>(text[kMagic.size()]);
  const int minor = static_cast<unsigned char>(text[kMagic.size() + 1]);
  if (major < 1 || major > 3 || minor != 0) {
    fail(file.source,
         fmt::format("has .npy version {}.{}; supported are 1.0, 2.0 and 3.0", major, minor));
  }
  const std::size_t length_bytes = major == 1 ? 2 : 4;
  const std::size_t header_begin = kVersionEnd + length_bytes;
  if (text.size() < header_begin) {
    fail(file.source,
         fmt::format("ends at byte {}, inside its first fields; is it truncated?", text.size()));
  }
  std::uint32_t header_bytes = 0;
  std::memcpy(&header_bytes, text.data() + kVersionEnd, length_bytes);
  if (header_bytes > text.size() - header_begin) {
    fail(file.source, fmt::format("says that its header has {} bytes, but {} follow; is it "
                                  "truncated?",
                                  header_bytes, text.size() - header_begin));
  }
  return {text.substr(header_begin, header_bytes), file.span.subspan(header_begin + header_bytes)};
}

}  // namespace

LoadedTensor parse_npy(const Bytes& file, RawPairs raw_pairs) {
  const Parts parts = split(file);
  Header header = HeaderParser(parts.header, file.source).parse();
  const ElementType& type = element_type(*header.descr, raw_pairs, file.source);
  if (*header.fortran_order) {
    fail(file.source, "is stored in Fortran order; save numpy.ascontiguousarray(array)");
  }
  const std::optional<std::int64_t> expected = byte_count(*header.shape, type.bits);
  if (!expected) {
    fail(file.source, fmt::format("has shape {}, more than 2^60 bytes of {}",
                                  shape_text(*header.shape), type.name));
  }
  const std::size_t given = parts.data.size();
  if (given != static_cast<std::size_t>(*expected)) {
    const char* hint = given < static_cast<std::size_t>(*expected)
                           ? "is it truncated?"
                           : "save one array a file, with nothing after it";
    fail(file.source, fmt::format("has shape {} of {}, which is {} bytes, but {} follow the "
                                  "header; {}",
                                  shape_text(*header.shape), type.name, *expected, given, hint));
  }
  TensorView view{std::filesystem::path(file.source).stem().string(), file.source, type.dtype,
                  std::move(*header.shape), parts.data};
  return aligned(std::move(view), file.owner);
}

LoadedTensor read_npy(const std::string& path, RawPairs raw_pairs) {
  return parse_npy(open_bytes(path), raw_pairs);
}

}  // namespace flce::io
