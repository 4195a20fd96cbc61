// SPDX-License-Identifier: Apache-2.0
// The .safetensors reader on files made by hand: what it accepts, and each way in which a file may
// lie.
#include <gtest/gtest.h>

#include <cstdint>
#include <string>

#include "io/safetensors.hpp"
#include "test_io_support.hpp"

namespace flce::io {
namespace {

std::string st_file(const std::string& header, std::string_view data = "") {
  return raw<std::uint64_t>({header.size()}) + header + std::string(data);
}

std::string st_file_of_length(std::uint64_t header_bytes) {
  return raw<std::uint64_t>({header_bytes}) + "{}";
}

std::string entry(const std::string& name, const std::string& dtype, const std::string& shape,
                  const std::string& offsets) {
  return "\"" + name + "\":{\"dtype\":\"" + dtype + "\",\"shape\":[" + shape +
         "],\"data_offsets\":[" + offsets + "]}";
}

Safetensors parse(const std::string& file, std::size_t offset = 0) {
  return Safetensors(bytes_of(file, "dir/model.safetensors", offset));
}

const std::string kData = raw<float>({0, 1, 2, 3, 4, 5});

TEST(IoSafetensors, ReadsTensorsAndMetadata) {
  const std::string header = "{\"__metadata__\":{\"format\":\"pt\"}," +
                             entry("target", "I64", "2", "24,40") + "," +
                             entry("hidden", "F32", "2,3", "0,24") + "}  ";
  const std::string targets = raw<std::int64_t>({-100, 7});
  const Safetensors file = parse(st_file(header, kData + targets));
  ASSERT_EQ(file.entries().size(), 2u);
  EXPECT_EQ(file.entries()[0].name, "hidden");
  EXPECT_EQ(file.entries()[1].name, "target");
  EXPECT_EQ(file.metadata(), (Metadata{{"format", "pt"}}));
  EXPECT_TRUE(file.contains("hidden"));
  EXPECT_FALSE(file.contains("weight"));

  const LoadedTensor hidden = file.tensor("hidden");
  EXPECT_EQ(hidden.view.name, "hidden");
  EXPECT_EQ(hidden.view.source, "dir/model.safetensors");
  EXPECT_EQ(hidden.view.dtype, Dtype::kF32);
  EXPECT_EQ(hidden.view.shape, (Shape{2, 3}));
  EXPECT_EQ(as_text(hidden.view.bytes), kData);
  EXPECT_EQ(as_text(file.tensor("target").view.bytes), targets);
}

TEST(IoSafetensors, ReadsEveryType) {
  const std::pair<const char*, Dtype> types[] = {{"F64", Dtype::kF64}, {"F32", Dtype::kF32},
                                                 {"F16", Dtype::kF16}, {"BF16", Dtype::kBF16},
                                                 {"I64", Dtype::kI64}, {"I32", Dtype::kI32}};
  for (const auto& [name, dtype] : types) {
    const std::string count = std::to_string(8 / (std::string(name).substr(1) == "64"   ? 8
                                                  : std::string(name).substr(1) == "32" ? 4
                                                                                        : 2));
    const Safetensors file = parse(st_file("{" + entry("x", name, count, "0,8") + "}", "abcdefgh"));
    EXPECT_EQ(file.tensor("x").view.dtype, dtype);
    EXPECT_EQ(as_text(file.tensor("x").view.bytes), "abcdefgh");
  }
}

TEST(IoSafetensors, ReadsEmptyFilesEmptyTensorsAndScalars) {
  EXPECT_TRUE(parse(st_file("{}")).entries().empty());
  const std::string header = "{" + entry("a", "F32", "0,4", "0,0") + "," +
                             entry("b", "F64", "", "0,8") + "," + entry("c", "BF16", "0", "8,8") +
                             "}";
  const Safetensors file = parse(st_file(header, "abcdefgh"));
  EXPECT_EQ(file.tensor("a").view.shape, (Shape{0, 4}));
  EXPECT_EQ(file.tensor("b").view.shape, Shape{});
  EXPECT_TRUE(file.tensor("c").view.bytes.empty());
}

TEST(IoSafetensors, CopiesMisalignedTensors) {
  const std::string header =
      "{" + entry("a", "U8", "1", "0,1") + "," + entry("b", "F32", "2,3", "1,25") + "}";
  for (std::size_t offset = 0; offset < 4; ++offset) {
    const Safetensors file = parse(st_file(header, "x" + kData), offset);
    const LoadedTensor tensor = file.tensor("b");
    EXPECT_EQ(reinterpret_cast<std::uintptr_t>(tensor.view.bytes.data()) % 4, 0u);
    EXPECT_EQ(as_text(tensor.view.bytes), kData);
  }
}

TEST(IoSafetensors, TensorsOutliveTheFileObject) {
  LoadedTensor tensor;
  {
    const Safetensors file = parse(st_file("{" + entry("x", "F32", "2,3", "0,24") + "}", kData));
    tensor = file.tensor("x");
  }
  EXPECT_EQ(as_text(tensor.view.bytes), kData);
}

TEST(IoSafetensors, NamesWhatItHasWhenATensorIsMissing) {
  const Safetensors file = parse(st_file("{" + entry("x", "F32", "2,3", "0,24") + "}", kData));
  EXPECT_EQ(error_of([&] { file.tensor("lm_head.weight"); }),
            "dir/model.safetensors: has no tensor 'lm_head.weight'; it has 1: 'x'");
}

TEST(IoSafetensors, ListsForeignTypesButDoesNotLoadThem) {
  const std::string header =
      "{" + entry("a", "F4", "2", "0,1") + "," + entry("b", "U8", "3", "1,4") + "}";
  const Safetensors file = parse(st_file(header, "abcd"));
  EXPECT_EQ(file.entries()[0].type, "F4");
  EXPECT_EQ(error_of([&] { file.tensor("b"); }),
            "dir/model.safetensors: tensor 'b' has dtype U8; supported are F64, F32, F16, BF16, "
            "I64, I32");
}

TEST(IoSafetensors, RefusesEveryTruncation) {
  const std::string file = st_file("{" + entry("x", "F32", "2,3", "0,24") + "}", kData);
  for (std::size_t size = 0; size < file.size(); ++size) {
    expect_contains(error_of([&] { parse(file.substr(0, size)); }), "dir/model.safetensors: ");
  }
}

struct Malformed {
  const char* name;
  std::string file;
  const char* problem;
  const char* remedy;
};

class IoSafetensorsMalformed : public testing::TestWithParam<Malformed> {};

TEST_P(IoSafetensorsMalformed, IsRefusedByName) {
  const std::string text = error_of([&] { parse(GetParam().file); });
  expect_contains(text, "dir/model.safetensors: ");
  expect_contains(text, GetParam().problem);
  expect_contains(text, GetParam().remedy);
  EXPECT_LT(text.size(), 600u);
}

std::string with_entry(const std::string& dtype, const std::string& shape,
                       const std::string& offsets) {
  return st_file("{" + entry("x", dtype, shape, offsets) + "}", kData);
}

std::string with_entries(const std::string& offsets_a, const std::string& offsets_b,
                         std::size_t data_bytes) {
  return st_file(
      "{" + entry("a", "F32", "2", offsets_a) + "," + entry("b", "F32", "2", offsets_b) + "}",
      std::string(data_bytes, 'x'));
}

std::string with_field(const std::string& fields) {
  return st_file("{\"x\":{" + fields + "}}", kData);
}

const Malformed kMalformed[] = {
    {"Empty", "", "is not a .safetensors file", "has 0 bytes"},
    {"SevenBytes", "1234567", "is not a .safetensors file", "less than the 8"},
    {"HeaderPastEnd", st_file_of_length(3), "its header has 3 bytes, but 2 follow", "truncated?"},
    {"HeaderAtLimit", st_file_of_length(100'000'000), "but 2 follow", "truncated?"},
    {"HeaderOverLimit", st_file_of_length(100'000'001), "100000001", "allows 100000000"},
    {"HeaderWrapping", st_file_of_length(~std::uint64_t{0}), "18446744073709551615", "allows"},
    {"HeaderNotObject", st_file("[]"), "starts with '[]'", "expected '{'"},
    {"HeaderEmpty", st_file(""), "starts with ''", "expected '{'"},
    {"HeaderCut", st_file("{\"x\":"), "not valid JSON", "unexpected end of input"},
    {"HeaderTwo", st_file("{}{}"), "not valid JSON", "expected end of input"},
    {"HeaderZeroByte", st_file(std::string("{}\0{\"a\":1}", 10)), "zero byte at 2", "text file?"},
    {"HeaderBadUtf8", st_file("{\"\xff\":1}"), "not valid JSON", "\\xff"},
    {"Nested", st_file("{\"x\":{\"dtype\":{\"a\":1}}}"), "'dtype' of tensor 'x'",
     "expected a text, got an object"},
    {"DeeplyNested", st_file("{\"x\":" + std::string(100'000, '[')), "'x': expected an object",
     "got a list"},
    {"DeeplyNestedShape", with_field("\"shape\":[" + std::string(100'000, '[')),
     "'shape' of tensor 'x'", "got a list"},
    {"TensorNotObject", st_file("{\"x\":3}"), "'x': expected an object", "got 3"},
    {"OffsetPastEnd", with_entry("F32", "2,4", "0,32"), "'x' [0, 32) ends past the 24 bytes",
     "truncated?"},
    {"OffsetsHuge", with_entry("F32", "2,3", "18446744073709551592,18446744073709551615"),
     "ends past the 24", "truncated?"},
    {"OffsetsReversed", with_entry("F32", "2,3", "24,0"), "'x' [24, 0) ends before it begins", ""},
    {"OffsetsOfOtherSize", with_entry("F32", "2,2", "0,24"), "(2, 2) of F32, which is 16 bytes",
     "data_offsets hold 24"},
    {"OffsetNegative", with_entry("F32", "2,3", "-24,0"), "'data_offsets' of tensor 'x'",
     "got -24"},
    {"OffsetFloat", with_entry("F32", "2,3", "0.0,24"), "'data_offsets' of tensor 'x'", "got 0.0"},
    {"OneOffset", with_entry("F32", "2,3", "24"), "'data_offsets' of tensor 'x' has 1 numbers",
     "expected 2"},
    {"ThreeOffsets", with_entry("F32", "2,3", "0,24,24"), "expected 2 whole numbers", "got 24"},
    {"Overlap", with_entries("0,8", "4,12", 12), "'a' [0, 8) and 'b' [4, 12) overlap", ""},
    {"SameBytes", with_entries("0,8", "0,8", 8), "'a' [0, 8) and 'b' [0, 8) overlap", ""},
    {"Hole", with_entries("0,8", "12,20", 20), "bytes [8, 12) of the data belong to no tensor",
     "no holes"},
    {"HoleAtStart", with_entries("4,12", "12,20", 20), "bytes [0, 4)", "no holes"},
    {"TrailingBytes", with_entries("0,8", "8,16", 17), "1 bytes follow the last tensor", "none"},
    {"DataWithoutTensor", st_file("{}", "x"), "1 bytes follow the last tensor", "none"},
    {"ShapeNegative", with_entry("F32", "-2,-3", "0,24"), "'shape' of tensor 'x'", "got -2"},
    {"ShapeFloat", with_entry("F32", "2.0,3", "0,24"), "'shape' of tensor 'x'", "got 2.0"},
    {"ShapeText", with_entry("F32", "\"2\",3", "0,24"), "'shape' of tensor 'x'",
     "got the text '2'"},
    {"ShapeNull", with_entry("F32", "null", "0,24"), "'shape' of tensor 'x'", "got null"},
    {"ShapeTooBig", with_entry("F32", "9223372036854775808", "0,24"), "from 0 to 2^63 - 1",
     "got 9223372036854775808"},
    {"ShapeHuge", with_entry("F32", "36893488147419103232", "0,24"), "from 0 to 2^63 - 1",
     "got 36893488147419103232"},
    {"ShapeOverflow", with_entry("F32", "4294967296,4294967296", "0,0"), "4294967296, 4294967296",
     "below 2^60"},
    {"ShapeWrapsToSize", with_entry("F32", "4611686018427387904,4", "0,0"), "4611686018427387904",
     "below 2^60"},
    {"ShapeNotList", with_field("\"shape\":6"), "'shape' of tensor 'x': expected a list", "got 6"},
    {"RankTooHigh",
     with_entry("F32",
                "1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,"
                "1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1",
                "0,4"),
     "more than 64 dimensions", ""},
    {"HalfBytes", with_entry("F4", "1", "0,1"), "(1) of F4", "not a whole number of bytes"},
    {"UnknownDtype", with_entry("F33", "2,3", "0,24"), "unknown dtype 'F33'", "supported are F64"},
    {"LongDtype", with_entry(std::string(100'000, 'F'), "2,3", "0,24"), "unknown dtype 'FFFF",
     "...'"},
    {"DtypeNumber", with_field("\"dtype\":32"), "'dtype' of tensor 'x': expected a text", "got 32"},
    {"DtypeBool", with_field("\"dtype\":true"), "'dtype' of tensor 'x'", "got true"},
    {"MissingField", with_field("\"dtype\":\"F32\",\"shape\":[2,3]"), "tensor 'x' lacks a key",
     "'data_offsets'"},
    {"UnknownField", with_field("\"strides\":[3,1]"), "tensor 'x' has the key 'strides'",
     "known are"},
    {"DuplicateField", with_field("\"dtype\":\"F32\",\"dtype\":\"F16\""),
     "tensor 'x' has the key 'dtype' twice", ""},
    {"DuplicateTensor",
     st_file("{" + entry("x", "F32", "2,3", "0,24") + "," + entry("x", "F32", "2,3", "0,24") + "}",
             kData),
     "the tensor 'x' stands twice", "its own name"},
    {"DuplicateMetadata", st_file("{\"__metadata__\":{},\"__metadata__\":{}}"),
     "'__metadata__' stands twice", ""},
    {"DuplicateMetadataKey", st_file("{\"__metadata__\":{\"k\":\"1\",\"k\":\"2\"}}"),
     "the metadata have the key 'k' twice", ""},
    {"MetadataNumber", st_file("{\"__metadata__\":{\"k\":1}}"), "the metadata's 'k'",
     "expected a text, got 1"},
    {"MetadataNested", st_file("{\"__metadata__\":{\"k\":{}}}"), "the metadata's 'k'",
     "got an object"},
    {"MetadataNull", st_file("{\"__metadata__\":null}"), "'__metadata__': expected an object",
     "got null"},
    {"NumberOverflow", with_entry("F32", "1e999", "0,24"), "not valid JSON", "number overflow"},
};

INSTANTIATE_TEST_SUITE_P(Kinds, IoSafetensorsMalformed, testing::ValuesIn(kMalformed),
                         [](const auto& kind) { return std::string(kind.param.name); });

TEST(IoSafetensors, RefusesEndlessMetadata) {
  std::string header = "{\"__metadata__\":{";
  for (std::size_t i = 0; i <= kMaxSafetensorsMetadata; ++i) {
    header += (i > 0 ? ",\"" : "\"") + std::to_string(i) + "\":\"\"";
  }
  expect_contains(error_of([&] { parse(st_file(header + "}}")); }), "more than 100000 keys");
}

}  // namespace
}  // namespace flce::io
