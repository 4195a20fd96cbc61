// SPDX-License-Identifier: Apache-2.0
// flce/device.hpp on a card that is there.
#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <set>

#include "flce/device.hpp"
#include "support/mirrors.hpp"
#include "support/params.hpp"

namespace flce_test {
namespace {

using flce::Dtype;

TEST(GpuServices, TheCardDescribesItself) {
  const std::vector<flce::CudaDevice> devices = flce::cuda_devices();
  ASSERT_FALSE(devices.empty());
  const int current = flce::cuda_current_device();
  ASSERT_LT(current, static_cast<int>(devices.size()));
  const flce::CudaDevice& device = devices[static_cast<std::size_t>(current)];
  EXPECT_EQ(device.index, current);
  EXPECT_FALSE(device.name.empty());
  EXPECT_GE(device.compute_capability, 80);
  EXPECT_GT(device.num_sms, 0);
  EXPECT_GE(device.shared_bytes, 48U * 1024);
  const flce::DeviceCaps caps = flce::cuda_caps();
  EXPECT_EQ(caps.kind, flce::DeviceKind::kCuda);
  EXPECT_EQ(caps.memory_bytes, device.memory_bytes);
  EXPECT_EQ(caps, flce::cuda_caps(current));
  EXPECT_THROW(flce::cuda_caps(static_cast<int>(devices.size())), flce::Error);
  const flce::CudaLibraries libraries = flce::cuda_libraries();
  EXPECT_GE(libraries.driver_version, 12000);
  EXPECT_GE(libraries.runtime_version, 12000);
  EXPECT_GT(libraries.cublaslt_version, 0);
  EXPECT_FALSE(libraries.cublaslt_path.empty());
  flce::cuda_set_device(current);
  EXPECT_EQ(flce::cuda_current_device(), current);
}

TEST(GpuServices, MemoryHoldsWhatIsPutThere) {
  std::vector<std::byte> bytes(1000);
  for (std::size_t i = 0; i < bytes.size(); ++i) bytes[i] = static_cast<std::byte>(i * 7);
  flce::DeviceMemory memory(1003);
  EXPECT_EQ(reinterpret_cast<std::uintptr_t>(memory.data()) % 256, 0U);
  memory.fill(std::byte{0x5A});
  memory.upload(bytes, 2);
  std::vector<std::byte> back(1003);
  memory.download(back);
  EXPECT_EQ(back[0], std::byte{0x5A});
  EXPECT_EQ(back[1002], std::byte{0x5A});
  EXPECT_TRUE(std::equal(bytes.begin(), bytes.end(), back.begin() + 2));
  std::vector<std::byte> part(10);
  memory.download(part, 500);
  EXPECT_TRUE(std::equal(part.begin(), part.end(), back.begin() + 500));
  EXPECT_THROW(memory.upload(bytes, 4), flce::Error);
  EXPECT_THROW(memory.download(bytes, 1004), flce::Error);
  flce::DeviceMemory taken = std::move(memory);
  EXPECT_EQ(taken.span().size(), 1003U);
}

TEST(GpuServices, MemoryIsCountedAndGivenBack) {
  const flce::CudaMemoryUse before = flce::cuda_memory_use();
  flce::cuda_reset_peak_memory();
  {
    const flce::DeviceMemory one(3'000'001);
    const flce::DeviceMemory two(5);
    EXPECT_EQ(flce::cuda_memory_use().allocated_bytes, before.allocated_bytes + 3'000'006);
  }
  EXPECT_EQ(flce::cuda_memory_use().allocated_bytes, before.allocated_bytes);
  EXPECT_EQ(flce::cuda_memory_use().peak_allocated_bytes, before.allocated_bytes + 3'000'006);
  try {
    const flce::DeviceMemory too_much(std::uint64_t{1} << 50);
    ADD_FAILURE() << "a card with a pebibyte";
  } catch (const flce::Error& error) {
    EXPECT_EQ(error.code(), flce::ErrorCode::kOutOfMemory);
  }
  EXPECT_EQ(flce::cuda_memory_use().allocated_bytes, before.allocated_bytes);
  const flce::DeviceMemory still_works(16);
}

flce::MatrixView matrix_of(Mirrors& mirrors, const Storage& storage) {
  return mirrors.view(storage.matrix());
}

TEST(GpuServices, RelativeErrorIsThatOfTheHost) {
  Rng rng(80);
  for (const Dtype dtype : kDtypes) {
    for (const Dtype want_dtype : {Dtype::kF64, Dtype::kF32}) {
      Storage got({dtype, 37, 19, 23, 1});
      Storage want({want_dtype, 37, 19, 19, 0});
      const std::vector<double> values = random_normals(want_dtype, 37 * 19, 1.0, rng);
      want.write(values);
      got.write(values);
      double error = 0.0;
      double norm = 0.0;
      const std::vector<double> rounded = got.read();
      for (std::size_t i = 0; i < values.size(); ++i) {
        error += (rounded[i] - values[i]) * (rounded[i] - values[i]);
        norm += values[i] * values[i];
      }
      Mirrors mirrors;
      EXPECT_NEAR(flce::cuda_relative_error(matrix_of(mirrors, got), matrix_of(mirrors, want)),
                  std::sqrt(error / norm), 1e-10)
          << flce::name_of(dtype);
    }
  }
}

TEST(GpuServices, RelativeErrorSeesNans) {
  const double nan = std::numeric_limits<double>::quiet_NaN();
  Storage got({Dtype::kF32, 1, 3, 3, 0});
  Storage want({Dtype::kF64, 1, 3, 3, 0});
  got.write(std::vector<double>{1, nan, 3});
  want.write(std::vector<double>{1, 2, 3});
  Mirrors one;
  EXPECT_TRUE(std::isinf(flce::cuda_relative_error(matrix_of(one, got), matrix_of(one, want))));
  want.write(std::vector<double>{1, nan, 3});
  Mirrors both;
  EXPECT_EQ(flce::cuda_relative_error(matrix_of(both, got), matrix_of(both, want)), 0.0);
  Storage other({Dtype::kF64, 1, 2, 2, 0});
  EXPECT_THROW(flce::cuda_relative_error(got.matrix(), other.matrix()), flce::Error);
}

TEST(GpuServices, ProductsAreTimedAndTuned) {
  Rng rng(81);
  for (const Dtype dtype : {Dtype::kBF16, Dtype::kF16, Dtype::kF32}) {
    Storage hidden({dtype, 256, 64, 64, 0});
    Storage weight({dtype, 1000, 64, 64, 0});
    hidden.write(random_normals(dtype, 256 * 64, 1.0, rng));
    weight.write(random_normals(dtype, 1000 * 64, 1.0, rng));
    Mirrors mirrors;
    const flce::FloorProducts floor(matrix_of(mirrors, hidden), matrix_of(mirrors, weight));
    const flce::CudaStream stream;
    for (const auto kind : {flce::FloorProducts::Kind::kUsual, flce::FloorProducts::Kind::kHard}) {
      flce::CudaTimer timer;
      timer.start(stream.handle());
      floor.run(kind, stream.handle());
      timer.stop(stream.handle());
      EXPECT_GT(timer.seconds(), 0.0);
      EXPECT_LT(timer.seconds(), 10.0);
    }
    std::set<std::string> products;
    for (const flce::TunedProduct& product : flce::tune_products(256, 64, 1000, dtype, 3)) {
      products.insert(product.product);
      EXPECT_GT(product.seconds, 0.0) << product.product;
      EXPECT_FALSE(product.tile.empty());
    }
    for (const char* name : {"logits", "grad_hidden", "grad_weight"}) {
      EXPECT_EQ(products.count(name), 1U) << name;
    }
  }
  EXPECT_THROW(flce::tune_products(0, 64, 1000, Dtype::kF32, 3), flce::Error);
}

TEST(GpuServices, AnEmptyGraphIsNoGraph) {
  const flce::CudaStream stream;
  const flce::CudaGraph graph;
  EXPECT_THROW(graph.replay(stream.handle()), flce::Error);
}

}  // namespace
}  // namespace flce_test
