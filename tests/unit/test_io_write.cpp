// SPDX-License-Identifier: Apache-2.0
// The writers: round trips of every type, and that a file appears whole or not at all.
#include <gtest/gtest.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include <csignal>
#include <numeric>
#include <string>
#include <vector>

#include "io/atomic_file.hpp"
#include "io/npy.hpp"
#include "io/safetensors.hpp"
#include "test_io_support.hpp"

namespace flce::io {
namespace {

using Names = std::vector<std::string>;

constexpr Dtype kAllDtypes[] = {Dtype::kF64,  Dtype::kF32, Dtype::kF16,
                                Dtype::kBF16, Dtype::kI64, Dtype::kI32};
const Shape kShapes[] = {{}, {1}, {7}, {3, 5}, {0, 4}, {2, 0}, {2, 3, 4}};

Tensor numbered(const std::string& name, Dtype dtype, const Shape& shape) {
  Tensor tensor(name, dtype, shape);
  const std::size_t size = tensor.view().bytes.size();
  for (std::size_t i = 0; i < size; ++i) tensor.data()[i] = static_cast<std::byte>(i * 37 + 1);
  return tensor;
}

void expect_same(const TensorView& got, const TensorView& wanted) {
  EXPECT_EQ(got.name, wanted.name);
  EXPECT_EQ(got.dtype, wanted.dtype);
  EXPECT_EQ(got.shape, wanted.shape);
  EXPECT_EQ(as_text(got.bytes), as_text(wanted.bytes));
}

class IoWrite : public WithFolder {
 protected:
  const Tensor small_ = numbered("small", Dtype::kF32, {2, 3});
};

TEST_F(IoWrite, NpyRoundTrips) {
  for (const Dtype dtype : kAllDtypes) {
    for (const Shape& shape : kShapes) {
      const Tensor tensor = numbered("x", dtype, shape);
      write_npy(path("x.npy"), tensor.view());
      expect_same(read_npy(path("x.npy"), RawPairs::kAreBf16).view, tensor.view());
    }
  }
  EXPECT_EQ(names(), Names{"x.npy"});
}

TEST_F(IoWrite, NpyDataAreAlignedForMapping) {
  EXPECT_EQ(npy_header(small_.view()).size() % 64, 0u);
  const Tensor deep = numbered("deep", Dtype::kF32, Shape(64, 1));
  EXPECT_EQ(npy_header(deep.view()).size() % 64, 0u);
}

TEST_F(IoWrite, SafetensorsRoundTrips) {
  std::vector<Tensor> tensors;
  for (const Dtype dtype : kAllDtypes) {
    for (const Shape& shape : kShapes) {
      tensors.push_back(numbered("tensor." + std::to_string(tensors.size()), dtype, shape));
    }
  }
  tensors.push_back(numbered("q\"uote\\ \n \xc3\xa9", Dtype::kF16, {3}));
  std::vector<TensorView> views;
  for (const Tensor& tensor : tensors) views.push_back(tensor.view());
  const Metadata metadata{{"format", "pt"}, {"made by", "a test"}};
  write_safetensors(path("all.safetensors"), views, metadata);

  const Safetensors file = read_safetensors(path("all.safetensors"));
  EXPECT_EQ(file.metadata(), metadata);
  EXPECT_EQ(file.entries().size(), views.size());
  for (const TensorView& view : views) {
    const LoadedTensor loaded = file.tensor(view.name);
    expect_same(loaded.view, view);
    // Wide types stand first and the header is padded, so nothing had to be copied.
    EXPECT_EQ(loaded.owner, file.tensor("tensor.1").owner) << view.name;
  }
  EXPECT_EQ(names(), Names{"all.safetensors"});
}

TEST_F(IoWrite, SafetensorsWithoutTensors) {
  write_safetensors(path("none.safetensors"), {});
  EXPECT_TRUE(read_safetensors(path("none.safetensors")).entries().empty());
}

TEST_F(IoWrite, SafetensorsRefusesBadNames) {
  const std::string target = path("x.safetensors");
  const std::vector<TensorView> twice{small_.view(), small_.view()};
  expect_contains(error_of([&] { write_safetensors(target, twice); }),
                  "x.safetensors: two tensors are named 'small'");
  TensorView odd = small_.view();
  odd.name = "__metadata__";
  expect_contains(error_of([&] { write_safetensors(target, std::vector{odd}); }),
                  "cannot be named '__metadata__'");
  odd.name = "\xff";
  expect_contains(error_of([&] { write_safetensors(target, std::vector{odd}); }), "UTF-8");
  EXPECT_EQ(names(), Names{});
}

TEST_F(IoWrite, ReplacesAFileAndKeepsItsMode) {
  put("x.txt", "old");
  ASSERT_EQ(::chmod(path("x.txt").c_str(), 0640), 0);
  write_text_atomic(path("x.txt"), "new");
  EXPECT_EQ(content_of(path("x.txt")), "new");
  struct stat info {};
  ASSERT_EQ(::stat(path("x.txt").c_str(), &info), 0);
  EXPECT_EQ(info.st_mode & 0777, 0640u);
  EXPECT_EQ(names(), Names{"x.txt"});
}

TEST_F(IoWrite, FollowsALinkToAFile) {
  put("real.txt", "old");
  std::filesystem::create_symlink("real.txt", path("link.txt"));
  write_text_atomic(path("link.txt"), "new");
  EXPECT_TRUE(std::filesystem::is_symlink(path("link.txt")));
  EXPECT_EQ(content_of(path("real.txt")), "new");
}

TEST_F(IoWrite, SaysWhichFileWouldBeReplaced) {
  EXPECT_EQ(replaced_file(path("new.txt"), "it"), path("new.txt"));
  std::filesystem::create_symlink("real.txt", path("link.txt"));
  expect_contains(error_of([&] { replaced_file(path("link.txt"), "--out"); }),
                  "--out: is a symbolic link that cannot be followed");
  put("real.txt", "old");
  EXPECT_EQ(replaced_file(path("link.txt"), "it"),
            std::filesystem::canonical(path("real.txt")).string());
  expect_contains(error_of([&] { replaced_file("/dev/null", "--out /dev/null"); }),
                  "--out /dev/null: cannot be written: it is a device");
  EXPECT_EQ(content_of(path("real.txt")), "old");
}

TEST_F(IoWrite, AnUncommittedFileLeavesNothing) {
  put("x.txt", "old");
  for (const bool may_be_nameless : {true, false}) {
    {
      AtomicFile file(path("x.txt"), may_be_nameless);
      file.write("half of the new");
      file.flush();
      EXPECT_EQ(content_of(path("x.txt")), "old");
    }
    EXPECT_EQ(content_of(path("x.txt")), "old");
    EXPECT_EQ(names(), Names{"x.txt"});
  }
}

TEST_F(IoWrite, AFileWithANameFromTheStartIsWrittenAsWell) {
  put("x.txt", "old");
  ASSERT_EQ(::chmod(path("x.txt").c_str(), 0640), 0);
  AtomicFile file(path("x.txt"), false);
  EXPECT_EQ(names().size(), 2U);
  file.write("new");
  file.commit();
  EXPECT_EQ(content_of(path("x.txt")), "new");
  EXPECT_EQ(names(), Names{"x.txt"});
}

TEST_F(IoWrite, NamesAnImpossibleTarget) {
  const auto error = [&](const std::string& target) {
    return error_of([&] { write_text_atomic(target, "text"); });
  };
  expect_contains(error(path("no/x.txt")), path("no/x.txt") + ": cannot be written");
  expect_contains(error(path("no/x.txt")), "No such file or directory");
  put("file", "");
  expect_contains(error(path("file/x.txt")), "Not a directory");
  EXPECT_EQ(error(folder_), folder_ + ": cannot be written: it is a directory; name a file");
  expect_contains(error(""), "is not a file name");
  expect_contains(error("/dev/null"), "is a device");
  expect_contains(error(path(std::string(300, 'x'))), "File name too long");
  std::filesystem::create_symlink("nowhere", path("link"));
  expect_contains(error(path("link")), "is a symbolic link that cannot be followed");
  EXPECT_EQ(names(), (Names{"file", "link"}));
}

TEST_F(IoWrite, NamesAnUnwritableFolder) {
  if (::geteuid() == 0) GTEST_SKIP() << "root may write to any folder";
  put("x.txt", "old");
  ASSERT_EQ(::chmod(folder_.c_str(), 0500), 0);
  const std::string text = error_of([&] { write_text_atomic(path("x.txt"), "new"); });
  ASSERT_EQ(::chmod(folder_.c_str(), 0700), 0);
  expect_contains(text, path("x.txt") + ": cannot be written");
  expect_contains(text, "Permission denied");
  EXPECT_EQ(content_of(path("x.txt")), "old");
  EXPECT_EQ(names(), Names{"x.txt"});
}

// A limit on the size of files stands in for a full disk: write() fails half-way.
class SmallDisk {
 public:
  explicit SmallDisk(rlim_t max_bytes) {
    previous_handler_ = std::signal(SIGXFSZ, SIG_IGN);
    ::getrlimit(RLIMIT_FSIZE, &previous_limit_);
    const rlimit limit{max_bytes, previous_limit_.rlim_max};
    ::setrlimit(RLIMIT_FSIZE, &limit);
  }
  ~SmallDisk() {
    ::setrlimit(RLIMIT_FSIZE, &previous_limit_);
    std::signal(SIGXFSZ, previous_handler_);
  }

 private:
  rlimit previous_limit_{};
  void (*previous_handler_)(int) = nullptr;
};

TEST_F(IoWrite, AFullDiskLeavesTheTargetsUntouched) {
  const Tensor big = numbered("big", Dtype::kF32, {5000});
  const std::vector<TensorView> views{small_.view(), big.view()};
  put("x", "old");
  std::string npy, safetensors, text, folder;
  {
    const SmallDisk disk(4096);
    npy = error_of([&] { write_npy(path("x"), big.view()); });
    safetensors = error_of([&] { write_safetensors(path("x"), views); });
    text = error_of([&] { write_text_atomic(path("x"), std::string(5000, 'x')); });
    folder = error_of([&] { write_npy_folder(path("results"), views); });
  }
  for (const std::string& error : {npy, safetensors, text}) {
    expect_contains(error, path("x") + ": cannot be written: File too large");
  }
  expect_contains(folder, path("results/big.npy") + ": cannot be written: File too large");
  EXPECT_EQ(content_of(path("x")), "old");
  EXPECT_EQ(names(), Names{"x"});
}

TEST_F(IoWrite, FolderIsMadeAndFilled) {
  const Tensor other = numbered("other", Dtype::kI64, {4});
  const std::vector<TensorView> views{small_.view(), other.view()};
  for (int round = 0; round < 2; ++round) {
    write_npy_folder(path("results"), views);
    EXPECT_EQ(names(), (Names{"results", "results/other.npy", "results/small.npy"}));
    expect_same(read_npy(path("results/small.npy")).view, small_.view());
    expect_same(read_npy(path("results/other.npy")).view, other.view());
  }
}

TEST_F(IoWrite, FolderIsAllOrNothing) {
  std::filesystem::create_directories(path("results/small.npy"));
  put("results/a.npy", "old");
  const Tensor a = numbered("a", Dtype::kF32, {2});
  const std::vector<TensorView> both{a.view(), small_.view()};
  expect_contains(error_of([&] { write_npy_folder(path("results"), both); }),
                  path("results/small.npy") + ": cannot be written: it is a directory");
  EXPECT_EQ(content_of(path("results/a.npy")), "old");
  EXPECT_EQ(names(), (Names{"results", "results/a.npy", "results/small.npy"}));
}

TEST_F(IoWrite, FolderRefusesBadNames) {
  for (const std::string& name : {std::string("../x"), std::string(), std::string("a\0b", 3)}) {
    TensorView odd = small_.view();
    odd.name = name;
    expect_contains(error_of([&] { write_npy_folder(path("results"), std::vector{odd}); }),
                    "cannot be named NAME.npy");
  }
  const std::vector<TensorView> twice{small_.view(), small_.view()};
  expect_contains(error_of([&] { write_npy_folder(path("results"), twice); }),
                  "two tensors are named 'small'");
  put("file", "");
  expect_contains(error_of([&] { write_npy_folder(path("file"), std::vector{small_.view()}); }),
                  path("file") + ": is not a folder");
  expect_contains(error_of([&] { write_npy_folder(path("a/b"), std::vector{small_.view()}); }),
                  path("a/b") + ": cannot be made as a folder: No such file or directory");
  EXPECT_EQ(names(), Names{"file"});
}

TEST_F(IoWrite, RefusesATensorWhoseBytesDoNotFit) {
  TensorView view = small_.view();
  view.bytes = view.bytes.first(8);
  expect_contains(error_of([&] { write_npy(path("x"), view); }), "expected 24 bytes, got 8");
  expect_contains(error_of([&] { write_safetensors(path("x"), std::vector{view}); }),
                  "expected 24 bytes, got 8");
  EXPECT_EQ(names(), Names{});
}

}  // namespace
}  // namespace flce::io
