// SPDX-License-Identifier: Apache-2.0
// The .npy reader on files made by hand: what it accepts, and each way in which a file may lie.
#include <gtest/gtest.h>

#include <cstdint>
#include <string>

#include "io/npy.hpp"
#include "test_io_support.hpp"

namespace flce::io {
namespace {

std::string npy_file(const std::string& dict, std::string_view data, int major = 1, int minor = 0) {
  std::string file = "\x93NUMPY";
  file += static_cast<char>(major);
  file += static_cast<char>(minor);
  const std::size_t length_bytes = major == 1 ? 2 : 4;
  for (std::size_t i = 0; i < length_bytes; ++i) {
    file += static_cast<char>((dict.size() >> (8 * i)) & 0xff);
  }
  return file + dict + std::string(data);
}

std::string dict(const std::string& descr, const std::string& shape,
                 const std::string& fortran_order = "False") {
  return "{'descr': " + descr + ", 'fortran_order': " + fortran_order + ", 'shape': " + shape +
         ", }";
}

LoadedTensor parse(const std::string& file, RawPairs raw_pairs = RawPairs::kRefuse) {
  return parse_npy(bytes_of(file, "dir/hidden.npy"), raw_pairs);
}

const std::string kData = raw<float>({0, 1, 2, 3, 4, 5});

TEST(IoNpy, ReadsEveryVersion) {
  for (const int major : {1, 2, 3}) {
    const LoadedTensor tensor = parse(npy_file(dict("'<f4'", "(2, 3)"), kData, major));
    EXPECT_EQ(tensor.view.name, "hidden");
    EXPECT_EQ(tensor.view.source, "dir/hidden.npy");
    EXPECT_EQ(tensor.view.dtype, Dtype::kF32);
    EXPECT_EQ(tensor.view.shape, (Shape{2, 3}));
    EXPECT_EQ(as_text(tensor.view.bytes), kData);
  }
}

TEST(IoNpy, ReadsEveryType) {
  const std::string eight(8, 'x');
  EXPECT_EQ(parse(npy_file(dict("'<f8'", "(1,)"), eight)).view.dtype, Dtype::kF64);
  EXPECT_EQ(parse(npy_file(dict("'<f4'", "(2,)"), eight)).view.dtype, Dtype::kF32);
  EXPECT_EQ(parse(npy_file(dict("'<f2'", "(4,)"), eight)).view.dtype, Dtype::kF16);
  EXPECT_EQ(parse(npy_file(dict("'<i8'", "(1,)"), eight)).view.dtype, Dtype::kI64);
  EXPECT_EQ(parse(npy_file(dict("'<i4'", "(2,)"), eight)).view.dtype, Dtype::kI32);
}

TEST(IoNpy, ReadsRawPairsAsBf16OnlyWhenTold) {
  for (const char* descr : {"'<V2'", "'|V2'"}) {
    const std::string file = npy_file(dict(descr, "(4,)"), "abcdefgh");
    EXPECT_EQ(parse(file, RawPairs::kAreBf16).view.dtype, Dtype::kBF16);
    const std::string text = error_of([&] { parse(file); });
    expect_contains(text, "dir/hidden.npy: has elements of 2 raw bytes");
    expect_contains(text, "say that it is bf16");
  }
}

TEST(IoNpy, ReadsScalarsEmptyArraysAndPythonTwoLongs) {
  EXPECT_EQ(parse(npy_file(dict("'<i4'", "()"), "abcd")).view.shape, Shape{});
  const LoadedTensor empty = parse(npy_file(dict("'<f4'", "(0, 7)"), ""));
  EXPECT_EQ(empty.view.shape, (Shape{0, 7}));
  EXPECT_TRUE(empty.view.bytes.empty());
  EXPECT_EQ(parse(npy_file(dict("'<f4'", "(2L, 3L)"), kData)).view.shape, (Shape{2, 3}));
}

TEST(IoNpy, ReadsAnyKeyOrderQuotesAndSpaces) {
  const std::string header = " {\"shape\" :(2,3) ,\t'fortran_order':False,'descr' : \"<f4\"}  \n";
  EXPECT_EQ(parse(npy_file(header, kData)).view.shape, (Shape{2, 3}));
}

TEST(IoNpy, ViewsAlignedDataAndCopiesTheRest) {
  const std::string file = npy_file(dict("'<f4'", "(2, 3)"), kData);
  for (std::size_t offset = 0; offset < 4; ++offset) {
    const Bytes bytes = bytes_of(file, "hidden.npy", offset);
    const LoadedTensor tensor = parse_npy(bytes);
    const std::byte* in_file = bytes.span.data() + (bytes.span.size() - kData.size());
    const bool is_aligned = reinterpret_cast<std::uintptr_t>(in_file) % 4 == 0;
    EXPECT_EQ(tensor.view.bytes.data() == in_file, is_aligned) << offset;
    EXPECT_EQ(reinterpret_cast<std::uintptr_t>(tensor.view.bytes.data()) % 4, 0u) << offset;
    EXPECT_EQ(as_text(tensor.view.bytes), kData) << offset;
  }
}

TEST(IoNpy, KeepsTheFileAlive) {
  LoadedTensor tensor = parse(npy_file(dict("'<f4'", "(2, 3)"), kData));
  EXPECT_EQ(as_text(tensor.view.bytes), kData);
}

TEST(IoNpy, RefusesEveryTruncation) {
  const std::string file = npy_file(dict("'<f4'", "(2, 3)"), kData);
  for (std::size_t size = 0; size < file.size(); ++size) {
    const std::string text = error_of([&] { parse(file.substr(0, size)); });
    expect_contains(text, "dir/hidden.npy: ");
  }
}

struct Malformed {
  const char* name;
  std::string file;
  const char* problem;
  const char* remedy;
};

class IoNpyMalformed : public testing::TestWithParam<Malformed> {};

TEST_P(IoNpyMalformed, IsRefusedByName) {
  const std::string text = error_of([&] { parse(GetParam().file); });
  expect_contains(text, "dir/hidden.npy: ");
  expect_contains(text, GetParam().problem);
  expect_contains(text, GetParam().remedy);
}

std::string with_shape(const std::string& shape) { return npy_file(dict("'<f4'", shape), kData); }
std::string with_descr(const std::string& descr) { return npy_file(dict(descr, "(2, 3)"), kData); }
std::string with_header(const std::string& header) { return npy_file(header, kData); }

std::string with_header_length(std::uint32_t length) {
  std::string file = npy_file(dict("'<f4'", "(2, 3)"), kData, 2);
  std::memcpy(file.data() + 8, &length, sizeof(length));
  return file;
}

const Malformed kMalformed[] = {
    {"Empty", "", "is not a .npy file", "numpy.save"},
    {"OtherMagic", "PK\x03\x04 a zip file", "is not a .npy file", "numpy.save"},
    {"Version4", npy_file(dict("'<f4'", "(2, 3)"), kData, 4), "version 4.0", "1.0, 2.0 and 3.0"},
    {"Version1Minor1", npy_file(dict("'<f4'", "(2, 3)"), kData, 1, 1), "version 1.1", "1.0, 2.0"},
    {"HeaderPastEnd", with_header_length(0xffffffffU), "4294967295 bytes", "truncated?"},
    {"BigEndian", with_descr("'>f4'"), "is big-endian ('>f4')", "newbyteorder('<')"},
    {"Fortran", npy_file(dict("'<f4'", "(2, 3)", "True"), kData), "Fortran order",
     "numpy.ascontiguousarray"},
    {"Objects", with_descr("'|O'"), "elements of type '|O'", "'<f4'"},
    {"Unsigned", with_descr("'<u4'"), "elements of type '<u4'", "'<i4'"},
    {"Complex", with_descr("'<c8'"), "elements of type '<c8'", "'<f8'"},
    {"EmptyDescr", with_descr("''"), "elements of type ''", "'<f8'"},
    {"Structured", with_descr("[('a', '<f4')]"), "structured array", "an array of its own"},
    {"DescrNotText", with_descr("4"), "expected the type's name in quotes", "got '4,"},
    {"DescrOpen", with_header("{'descr': '<f4"), "expected the type's name in closed quotes", ""},
    {"FortranNotBool", npy_file(dict("'<f4'", "(2, 3)", "0"), kData), "expected True or False",
     "got '0,"},
    {"NegativeDim", with_shape("(-2, -3)"), "expected a dimension >= 0", "got '-2"},
    {"HugeDim", with_shape("(99999999999999999999,)"), "expected a dimension below 2^63", "got"},
    {"FloatDim", with_shape("(2.0, 3)"), "expected a comma or the end of the shape", "got '.0"},
    {"NestedShape", with_shape("((2, 3), 4)"), "expected a whole number", "got '(2"},
    {"DeeplyNested", with_shape(std::string(60000, '(')), "expected a whole number", "got '((("},
    {"ShapeNotTuple", with_shape("6"), "expected the shape ('(')", "got '6"},
    {"ShapeOverflow", with_shape("(4294967296, 4294967296)"), "(4294967296, 4294967296)", "2^60"},
    {"EmptyShapeOverflow", with_shape("(0, 4611686018427387904, 16)"), "4611686018427387904",
     "2^60"},
    {"ManyDims", with_shape("(" + std::string(65 * 2, '1') + ")"), "below 2^63", ""},
    {"RankTooHigh",
     with_shape("(1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,"
                "1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1)"),
     "more than 64 dimensions", ""},
    {"TruncatedData", npy_file(dict("'<f4'", "(2, 3)"), kData.substr(1)), "is 24 bytes, but 23",
     "truncated?"},
    {"TrailingBytes", npy_file(dict("'<f4'", "(2, 3)"), kData + "x"), "is 24 bytes, but 25",
     "one array a file"},
    {"EmptyArrayWithData", with_shape("(0, 3)"), "is 0 bytes, but 24", "one array a file"},
    {"DuplicateKey", with_header("{'shape': (2, 3), 'descr': '<f4', 'shape': (3, 2)}"),
     "the key 'shape' twice", ""},
    {"UnknownKey", with_header("{'descr': '<f4', 'order': 'C'}"), "the key 'order'", "known are"},
    {"MissingKey", with_header("{'descr': '<f4', 'shape': (2, 3)}"), "lacks a key",
     "'fortran_order'"},
    {"TextAfterDict", with_header(dict("'<f4'", "(2, 3)") + " exec()"),
     "expected nothing after the header's dict", "got 'exec()'"},
    {"NotADict", with_header("['descr']"), "expected the header's dict ('{')", "got '['descr']'"},
    {"ControlCharacters", with_header("\x1b[31m\n"), "malformed", "got '\\x1b[31m\\x0a'"},
};

INSTANTIATE_TEST_SUITE_P(Kinds, IoNpyMalformed, testing::ValuesIn(kMalformed),
                         [](const auto& kind) { return std::string(kind.param.name); });

}  // namespace
}  // namespace flce::io
