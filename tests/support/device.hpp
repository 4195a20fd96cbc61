// SPDX-License-Identifier: Apache-2.0
// Where the operation's tests run. Their memory is always host memory (storage.hpp); on a device
// each block of it is mirrored byte for byte, poison and canaries included, the call works on the
// mirrors, and they are copied back, so that every check for damage means the same there.
//
// FLCE_TEST_DEVICE chooses: cpu (the default), cuda, or copy, which mirrors into other host memory
// and runs on the CPU: that tests the mirroring itself. FLCE_TEST_ROUTE=portable keeps a card to
// that route.
#pragma once

#include <span>
#include <string>

#include "flce/flce.hpp"

namespace flce_test {

enum class TestDevice { kCpu, kCopy, kCuda };
TestDevice test_device();
inline bool on_cuda() { return test_device() == TestDevice::kCuda; }
// The route that tests ask for on a card: FLCE_TEST_ROUTE, else auto.
flce::Route test_route();
// Asks for a route while it lives.
class RouteScope {
 public:
  explicit RouteScope(flce::Route route);
  ~RouteScope();
  RouteScope(const RouteScope&) = delete;
  RouteScope& operator=(const RouteScope&) = delete;

 private:
  std::string before_;  // empty: nothing was asked for
};
// Why a test of something that only the CPU does is skipped there.
inline constexpr const char* kCpuAlone = "about threads of the CPU; a card has its own test";

// flce::run and its like, on that device. The memory behind every view and span must be that of a
// Block (or of a Storage, which has one).
void run(const flce::Plan& plan, const flce::Inputs& inputs, const flce::Outputs& outputs,
         std::span<std::byte> workspace, const flce::RunOptions& options = {});
void forward(const flce::Plan& plan, const flce::Inputs& inputs, const flce::Outputs& outputs,
             std::span<std::byte> workspace, std::span<std::byte> saved,
             const flce::RunOptions& options = {});
void backward(const flce::Plan& plan, const flce::Inputs& inputs, const flce::Outputs& outputs,
              std::span<std::byte> workspace, std::span<std::byte> saved,
              const flce::RunOptions& options = {});
void scale_grads(const flce::VectorView& upstream, const flce::Outputs& gradients);

}  // namespace flce_test
