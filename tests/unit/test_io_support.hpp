// SPDX-License-Identifier: Apache-2.0
// What the tests of tools/io share: files made by hand, a folder of their own, and the text of the
// Error that a call must throw.
#pragma once

#include <gtest/gtest.h>
#include <stdlib.h>

#include <algorithm>
#include <cstddef>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <initializer_list>
#include <iterator>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "flce/error.hpp"
#include "io/bytes.hpp"
#include "io/tensor.hpp"

namespace flce::io {

// The text of the Error{kInvalidArgument} that `body` throws; "" and a failure if it does not.
template <typename Body>
std::string error_of(Body&& body) {
  try {
    body();
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::kInvalidArgument) << error.what();
    return error.what();
  }
  ADD_FAILURE() << "no flce::Error was thrown";
  return "";
}

inline void expect_contains(const std::string& text, std::string_view part) {
  EXPECT_NE(text.find(part), std::string::npos) << "'" << part << "' is not in: " << text;
}

// A file in memory that owns its bytes. With `offset` it starts that many bytes past an aligned
// address.
inline Bytes bytes_of(std::string_view content, std::string source, std::size_t offset = 0) {
  const auto memory = std::make_shared<Tensor>(
      "file", Dtype::kI32, Shape{static_cast<std::int64_t>((content.size() + offset) / 4 + 1)});
  std::memcpy(memory->data() + offset, content.data(), content.size());
  return {{memory->data() + offset, content.size()}, std::move(source), memory};
}

template <typename Value>
std::string raw(std::initializer_list<Value> values) {
  std::string out(values.size() * sizeof(Value), '\0');
  std::memcpy(out.data(), values.begin(), out.size());
  return out;
}

inline std::string as_text(std::span<const std::byte> bytes) {
  return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}

inline std::string content_of(const std::string& path) {
  std::ifstream stream(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(stream), {}};
}

// A folder that lives as long as a test.
class WithFolder : public testing::Test {
 protected:
  void SetUp() override {
    std::string pattern = (std::filesystem::temp_directory_path() / "flce-test-XXXXXX").string();
    ASSERT_NE(::mkdtemp(pattern.data()), nullptr);
    folder_ = pattern;
  }
  void TearDown() override { std::filesystem::remove_all(folder_); }

  std::string path(std::string_view name) const { return folder_ + "/" + std::string(name); }

  void put(std::string_view name, std::string_view content) const {
    std::ofstream(path(name), std::ios::binary) << content;
  }

  // Names of all files, also hidden ones: a temporary file left behind would be among them.
  std::vector<std::string> names() const {
    std::vector<std::string> out;
    for (const auto& entry : std::filesystem::recursive_directory_iterator(folder_)) {
      out.push_back(std::filesystem::relative(entry.path(), folder_).string());
    }
    std::sort(out.begin(), out.end());
    return out;
  }

  std::string folder_;
};

}  // namespace flce::io
