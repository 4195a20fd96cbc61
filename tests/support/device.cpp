// SPDX-License-Identifier: Apache-2.0
#include "support/device.hpp"

#include <gtest/gtest.h>

#include <cstdio>
#include <cstdlib>
#include <optional>
#include <string>

#include "flce/device.hpp"
#include "support/mirrors.hpp"

namespace flce_test {
namespace {

// What ctest takes for "skipped" (SKIP_RETURN_CODE).
constexpr int kSkipped = 77;

TestDevice read_test_device() {
  const char* text = std::getenv("FLCE_TEST_DEVICE");
  const std::string name = text != nullptr ? text : "";
  if (name.empty() || name == "cpu") return TestDevice::kCpu;
  if (name == "copy") return TestDevice::kCopy;
  if (name == "cuda") return TestDevice::kCuda;
  std::fprintf(stderr, "FLCE_TEST_DEVICE is '%s'; known: cpu, copy, cuda\n", text);
  std::exit(2);
}

// Ends the whole program before its first test where its device is missing: to skip is no failure.
class DeviceIsThere : public testing::Environment {
 public:
  void SetUp() override {
    if (!on_cuda() || flce::has_cuda()) return;
    std::printf("skipped, FLCE_TEST_DEVICE is cuda: %s\n", flce::cuda_refusal().c_str());
    std::fflush(stdout);
    std::exit(kSkipped);
  }
};
[[maybe_unused]] testing::Environment* const kDeviceIsThere =
    testing::AddGlobalTestEnvironment(new DeviceIsThere);

// Runs `call` on mirrors, with a stream of its own, and copies back whatever comes of it.
template <typename Call>
void on_device(const flce::RunOptions& options, Call call) {
  Mirrors mirrors;
  flce::RunOptions with_stream = options;
  std::optional<flce::CudaStream> stream;
  if (on_cuda() && options.stream == nullptr) with_stream.stream = stream.emplace().handle();
  try {
    call(mirrors, with_stream);
  } catch (...) {
    if (stream) stream->synchronize();
    mirrors.download();
    throw;
  }
  if (stream) stream->synchronize();
  mirrors.download();
}

}  // namespace

namespace {
constexpr const char* kRouteVariable = "FLCE_TEST_ROUTE";
}

RouteScope::RouteScope(flce::Route route) {
  if (const char* text = std::getenv(kRouteVariable)) before_ = text;
  ::setenv(kRouteVariable, flce::name_of(route), 1);
}
RouteScope::~RouteScope() {
  if (before_.empty()) {
    ::unsetenv(kRouteVariable);
  } else {
    ::setenv(kRouteVariable, before_.c_str(), 1);
  }
}

flce::Route test_route() {
  const char* text = std::getenv(kRouteVariable);
  return on_cuda() && text != nullptr ? flce::route_of(text) : flce::Route::kAuto;
}

TestDevice test_device() {
  static const TestDevice device = read_test_device();
  return device;
}

void run(const flce::Plan& plan, const flce::Inputs& inputs, const flce::Outputs& outputs,
         std::span<std::byte> workspace, const flce::RunOptions& options) {
  if (test_device() == TestDevice::kCpu) {
    return flce::run(plan, inputs, outputs, workspace, options);
  }
  on_device(options, [&](Mirrors& mirrors, const flce::RunOptions& with_stream) {
    flce::run(plan, mirrors.inputs(inputs), mirrors.outputs(outputs), mirrors.scratch(workspace),
              with_stream);
  });
}

void forward(const flce::Plan& plan, const flce::Inputs& inputs, const flce::Outputs& outputs,
             std::span<std::byte> workspace, std::span<std::byte> saved,
             const flce::RunOptions& options) {
  if (test_device() == TestDevice::kCpu) {
    return flce::forward(plan, inputs, outputs, workspace, saved, options);
  }
  on_device(options, [&](Mirrors& mirrors, const flce::RunOptions& with_stream) {
    flce::forward(plan, mirrors.inputs(inputs), mirrors.outputs(outputs),
                  mirrors.scratch(workspace), mirrors.span(saved), with_stream);
  });
}

void backward(const flce::Plan& plan, const flce::Inputs& inputs, const flce::Outputs& outputs,
              std::span<std::byte> workspace, std::span<std::byte> saved,
              const flce::RunOptions& options) {
  if (test_device() == TestDevice::kCpu) {
    return flce::backward(plan, inputs, outputs, workspace, saved, options);
  }
  on_device(options, [&](Mirrors& mirrors, const flce::RunOptions& with_stream) {
    flce::backward(plan, mirrors.inputs(inputs), mirrors.outputs(outputs),
                   mirrors.scratch(workspace), mirrors.span(saved), with_stream);
  });
}

void scale_grads(const flce::VectorView& upstream, const flce::Outputs& gradients) {
  if (test_device() == TestDevice::kCpu) {
    return flce::scale_grads(upstream, gradients.grad_hidden, gradients.grad_weight,
                             gradients.grad_bias);
  }
  on_device({}, [&](Mirrors& mirrors, const flce::RunOptions& with_stream) {
    flce::scale_grads(mirrors.view(upstream), mirrors.view(gradients.grad_hidden),
                      mirrors.view(gradients.grad_weight), mirrors.view(gradients.grad_bias),
                      on_cuda() ? flce::DeviceKind::kCuda : flce::DeviceKind::kCpu,
                      with_stream.stream);
  });
}

}  // namespace flce_test
