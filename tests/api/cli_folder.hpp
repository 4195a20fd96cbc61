// SPDX-License-Identifier: Apache-2.0
// A temporary folder in which a test calls the built command line and reads and writes tensors.
#pragma once

#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "io/npy.hpp"
#include "io/safetensors.hpp"

namespace flce::test {

using Numbers = std::vector<double>;

inline bool contains(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos;
}

// f64, f32, i64 and i32 only; other types are made by their tests.
inline io::Tensor make_tensor(const std::string& name, Dtype dtype, io::Shape shape,
                              const Numbers& values) {
  io::Tensor tensor(name, dtype, std::move(shape));
  for (std::size_t i = 0; i < values.size(); ++i) {
    if (dtype == Dtype::kF64) reinterpret_cast<double*>(tensor.data())[i] = values[i];
    if (dtype == Dtype::kF32) {
      reinterpret_cast<float*>(tensor.data())[i] = static_cast<float>(values[i]);
    }
    if (dtype == Dtype::kI64) {
      reinterpret_cast<std::int64_t*>(tensor.data())[i] = static_cast<std::int64_t>(values[i]);
    }
    if (dtype == Dtype::kI32) {
      reinterpret_cast<std::int32_t*>(tensor.data())[i] = static_cast<std::int32_t>(values[i]);
    }
  }
  return tensor;
}

template <typename Number>
Numbers converted(const io::TensorView& view) {
  std::vector<Number> raw(view.bytes.size() / sizeof(Number));
  std::memcpy(raw.data(), view.bytes.data(), view.bytes.size());
  return {raw.begin(), raw.end()};
}

inline Numbers numbers_of(const io::TensorView& view) {
  if (view.dtype == Dtype::kF64) return converted<double>(view);
  if (view.dtype == Dtype::kF32) return converted<float>(view);
  if (view.dtype == Dtype::kI64) return converted<std::int64_t>(view);
  if (view.dtype == Dtype::kI32) return converted<std::int32_t>(view);
  ADD_FAILURE() << view.name << " has an element type that this test does not read";
  return {};
}

inline void expect_near(const Numbers& got, const Numbers& want, double tolerance,
                        const std::string& what) {
  ASSERT_EQ(got.size(), want.size()) << what;
  for (std::size_t i = 0; i < got.size(); ++i) {
    EXPECT_NEAR(got[i], want[i], tolerance) << what << "[" << i << "]";
  }
}

struct Outcome {
  int exit_code = -1;
  std::string out;
  std::string err;
};

class Folder : public testing::Test {
 protected:
  // What a test says holds on every machine: no card is seen unless the test asks for it.
  explicit Folder(std::string environment = "CUDA_VISIBLE_DEVICES= ")
      : environment_(std::move(environment)) {
    std::string pattern = (std::filesystem::temp_directory_path() / "flce-cli-XXXXXX").string();
    if (mkdtemp(pattern.data()) == nullptr) throw std::runtime_error("no temporary folder");
    root_ = pattern;
    std::filesystem::create_directory(work());
  }
  ~Folder() override { std::filesystem::remove_all(root_); }

  std::filesystem::path work() const { return root_ / "work"; }
  // Where the command keeps figures of this machine; empty at first.
  std::filesystem::path cache_file() const { return root_ / "cache" / "flce" / "cpu.json"; }
  std::string path(const std::string& name) const { return (work() / name).string(); }

  static std::string read_file(const std::filesystem::path& path) {
    std::ifstream file(path, std::ios::binary);
    return {std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
  }
  void write_file(const std::string& name, const std::string& text) const {
    std::ofstream(path(name), std::ios::binary) << text;
  }
  // Everything in the folder, with its size.
  std::map<std::string, std::uintmax_t> listing() const {
    std::map<std::string, std::uintmax_t> files;
    for (const auto& entry : std::filesystem::recursive_directory_iterator(work())) {
      files[entry.path().string()] = entry.is_regular_file() ? entry.file_size() : 0;
    }
    return files;
  }

  // `flce ARGS` in the folder; neither stdout nor stderr is a terminal.
  Outcome flce(const std::string& args) const {
    const std::string out = (root_ / "out").string();
    const std::string err = (root_ / "err").string();
    // A copy of the tests on another machine says where its command is.
    const char* moved = std::getenv("FLCE_CLI");
    const std::string command = moved != nullptr ? moved : FLCE_CLI;
    const std::string cache = "XDG_CACHE_HOME='" + (root_ / "cache").string() + "' ";
    const int status =
        std::system(("cd '" + work().string() + "' && " + cache + environment_ + "'" + command +
                     "' " + args + " >'" + out + "' 2>'" + err + "' </dev/null")
                        .c_str());
    return {WIFEXITED(status) ? WEXITSTATUS(status) : -1, read_file(out), read_file(err)};
  }
  // Exit code 0 and nothing on stderr; returns stdout.
  std::string fine(const std::string& args) const {
    const Outcome outcome = flce(args);
    EXPECT_EQ(outcome.exit_code, 0) << args << '\n' << outcome.out << outcome.err;
    EXPECT_EQ(outcome.err, "") << args;
    return outcome.out;
  }
  // Exit code 2, one line on stderr that holds each part, and nothing changed in the folder.
  void expect_refused(const std::string& args, const std::vector<std::string>& parts) const {
    const auto before = listing();
    const Outcome outcome = flce(args);
    EXPECT_EQ(outcome.exit_code, 2) << args << '\n' << outcome.out << outcome.err;
    EXPECT_EQ(outcome.out, "") << args;
    EXPECT_EQ(outcome.err.rfind("flce: error: ", 0), 0U) << args << '\n' << outcome.err;
    EXPECT_EQ(std::count(outcome.err.begin(), outcome.err.end(), '\n'), 1) << outcome.err;
    for (const std::string& part : parts) {
      EXPECT_TRUE(contains(outcome.err, part)) << args << '\n' << outcome.err << part;
    }
    EXPECT_EQ(listing(), before) << args;
  }

 private:
  std::string environment_;  // of the commands, as the shell takes it
  std::filesystem::path root_;
};

}  // namespace flce::test
