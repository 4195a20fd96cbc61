// SPDX-License-Identifier: Apache-2.0
// Tensors, their views, and the bytes of files that are mapped, empty, piped or missing.
#include <gtest/gtest.h>
#include <sys/stat.h>

#include <algorithm>
#include <cstdint>
#include <limits>
#include <thread>

#include "io/bytes.hpp"
#include "io/element_type.hpp"
#include "io/tensor.hpp"
#include "test_io_support.hpp"

namespace flce::io {
namespace {

constexpr std::int64_t kMax = std::numeric_limits<std::int64_t>::max();

TEST(IoTensor, IsZeroedAndAligned) {
  Tensor tensor("grad_hidden", Dtype::kF32, {3, 5});
  EXPECT_EQ(reinterpret_cast<std::uintptr_t>(tensor.data()) % 64, 0u);
  const TensorView view = tensor.view();
  EXPECT_EQ(view.bytes.size(), 60u);
  EXPECT_TRUE(std::ranges::all_of(view.bytes, [](std::byte b) { return b == std::byte{0}; }));
}

TEST(IoTensor, GivesTheLibrarysViews) {
  Tensor tensor("grad_hidden", Dtype::kBF16, {3, 5});
  const MatrixView matrix = as_matrix(tensor);
  EXPECT_EQ(matrix.data, tensor.data());
  EXPECT_EQ(matrix.rows, 3);
  EXPECT_EQ(matrix.cols, 5);
  EXPECT_EQ(matrix.row_stride, 5);
  EXPECT_EQ(matrix.col_stride, 1);
  EXPECT_EQ(matrix.dtype, Dtype::kBF16);

  Tensor loss("loss", Dtype::kF32, {7});
  const VectorView vector = as_vector(loss);
  EXPECT_EQ(vector.data, loss.data());
  EXPECT_EQ(vector.size, 7);
  EXPECT_EQ(vector.stride, 1);
  EXPECT_EQ(vector.dtype, Dtype::kF32);
}

TEST(IoTensor, ASingleNumberIsAVectorOfOne) {
  Tensor scalar("normalizer", Dtype::kF64, {});
  EXPECT_EQ(as_vector(scalar).size, 1);
}

TEST(IoTensor, EmptyTensorsHaveAPointer) {
  Tensor tensor("hidden", Dtype::kF32, {0, 5});
  EXPECT_NE(as_matrix(tensor).data, nullptr);
  EXPECT_EQ(as_matrix(tensor).rows, 0);
}

TEST(IoTensor, NamesAWrongRank) {
  Tensor cube("hidden", Dtype::kF32, {3, 4, 5});
  EXPECT_EQ(error_of([&] { as_matrix(cube); }),
            "tensor 'hidden' has shape (3, 4, 5); expected 2 dimensions (N, H)");
  EXPECT_EQ(error_of([&] { as_vector(cube, "(V)"); }),
            "tensor 'hidden' has shape (3, 4, 5); expected 1 dimension (V)");
  TensorView view = cube.view();
  view.source = "hidden.npy";
  EXPECT_EQ(error_of([&] { as_matrix(view, "(V, H)"); }),
            "hidden.npy: tensor 'hidden' has shape (3, 4, 5); expected 2 dimensions (V, H)");
}

TEST(IoTensor, RefusesImpossibleShapes) {
  expect_contains(error_of([] { Tensor("x", Dtype::kF32, {-1}); }), "expected dimensions >= 0");
  expect_contains(error_of([] { Tensor("x", Dtype::kF32, {kMax, 2}); }), "fewer than 2^60 bytes");
  expect_contains(error_of([] { Tensor("x", Dtype::kF32, {0, kMax}); }), "fewer than 2^60 bytes");
  expect_contains(error_of([] { Tensor("x", Dtype::kNone, {1}); }), "no element type was given");
  expect_contains(error_of([] { Tensor("x", Dtype::kF32, Shape(65, 1)); }), "at most 64");
}

TEST(IoTensor, RefusesBytesThatDoNotFit) {
  Tensor tensor("x", Dtype::kF32, {2, 3});
  TensorView view = tensor.view();
  view.bytes = view.bytes.first(20);
  EXPECT_EQ(error_of([&] { as_matrix(view); }),
            "tensor 'x' has shape (2, 3); expected 24 bytes, got 20");
}

TEST(IoElementType, CountsBytesWithoutOverflow) {
  EXPECT_EQ(byte_count(Shape{}, 32), 4);
  EXPECT_EQ(byte_count(Shape{3, 5}, 16), 30);
  EXPECT_EQ(byte_count(Shape{3, 0, 5}, 16), 0);
  EXPECT_EQ(byte_count(Shape{2}, 4), 1);
  EXPECT_EQ(byte_count(Shape{3}, 4), std::nullopt);
  EXPECT_EQ(byte_count(Shape{kMax}, 8), std::nullopt);
  EXPECT_EQ(byte_count(Shape{std::int64_t{1} << 32, std::int64_t{1} << 32}, 32), std::nullopt);
  EXPECT_EQ(byte_count(Shape{0, std::int64_t{1} << 62, 16}, 8), std::nullopt);
  EXPECT_EQ(byte_count(Shape{-1, -1}, 32), std::nullopt);
}

using IoBytes = WithFolder;

TEST_F(IoBytes, MapsAFile) {
  put("file", "content");
  const Bytes bytes = open_bytes(path("file"));
  EXPECT_EQ(as_text(bytes.span), "content");
  EXPECT_EQ(bytes.source, path("file"));
  EXPECT_NE(bytes.owner, nullptr);
}

TEST_F(IoBytes, StaysWhenTheFileIsRemoved) {
  put("file", "content");
  const Bytes bytes = open_bytes(path("file"));
  std::filesystem::remove(path("file"));
  EXPECT_EQ(as_text(bytes.span), "content");
}

TEST_F(IoBytes, OpensAnEmptyFile) {
  put("file", "");
  EXPECT_TRUE(open_bytes(path("file")).span.empty());
}

TEST_F(IoBytes, ReadsAPipeToItsEnd) {
  ASSERT_EQ(::mkfifo(path("pipe").c_str(), 0600), 0);
  const std::string content(200'000, 'x');
  std::thread writer([&] { put("pipe", content); });
  const Bytes bytes = open_bytes(path("pipe"));
  writer.join();
  EXPECT_EQ(as_text(bytes.span), content);
}

TEST_F(IoBytes, NamesWhatCannotBeOpened) {
  EXPECT_EQ(error_of([&] { open_bytes(path("missing")); }),
            path("missing") + ": cannot be opened: No such file or directory");
  EXPECT_EQ(error_of([&] { open_bytes(folder_); }),
            folder_ + ": is a directory; name a file in it");
  EXPECT_EQ(error_of([] { open_bytes("/dev/zero"); }),
            "/dev/zero: is a device or a socket; name a file or a pipe");
}

}  // namespace
}  // namespace flce::io
