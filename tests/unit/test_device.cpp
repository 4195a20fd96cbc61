// SPDX-License-Identifier: Apache-2.0
// flce/device.hpp where there is no CUDA device: everything says why, and planning goes on. With a
// device: tests/gpu/test_services.cpp.
#include <gtest/gtest.h>

#include <array>
#include <functional>
#include <string>

#include "flce/device.hpp"
#include "flce/flce.hpp"
#include "test_plan_support.hpp"

namespace flce::test {
namespace {

class WithoutCuda : public testing::Test {
 protected:
  void SetUp() override {
    if (has_cuda()) GTEST_SKIP() << "there is a CUDA device; tests/gpu is about it";
  }
};

TEST_F(WithoutCuda, TheReasonIsASentenceThatNamesWhatWorks) {
  EXPECT_GT(cuda_refusal().size(), 20u);
  EXPECT_TRUE(contains(cuda_refusal(), "device cpu works")) << cuda_refusal();
  EXPECT_EQ(&cuda_refusal(), &cuda_refusal());  // looked up once
}

TEST_F(WithoutCuda, EveryServiceThrowsIt) {
  const std::array<std::function<void()>, 11> services = {
      [] { cuda_devices(); },
      [] { cuda_libraries(); },
      [] { cuda_caps(); },
      [] { cuda_current_device(); },
      [] { cuda_set_device(0); },
      [] { cuda_synchronize(); },
      [] { DeviceMemory memory(16); },
      [] { cuda_memory_use(); },
      [] { CudaStream stream; },
      [] { CudaTimer timer; },
      [] { tune_products(16, 16, 16, Dtype::kF32, 1); },
  };
  for (const auto& service : services) {
    EXPECT_EQ(error_of(ErrorCode::kUnsupported, service), cuda_refusal());
  }
}

TEST_F(WithoutCuda, NothingOfItIsNoDevice) {
  const DeviceMemory none(0);
  EXPECT_TRUE(none.span().empty());
  const DeviceMemory nothing;
  EXPECT_EQ(nothing.data(), nullptr);
}

// A plan for a card can be made, and running it says why not.
TEST_F(WithoutCuda, PlansForCardsDoNotRun) {
  float hidden[4] = {};
  float weight[8] = {};
  std::int64_t target[2] = {};
  float loss = -1.0F;
  Inputs inputs;
  inputs.hidden = {hidden, 2, 2, 2, 1, Dtype::kF32};
  inputs.weight = {weight, 4, 2, 2, 1, Dtype::kF32};
  inputs.target = {target, 2, 1, Dtype::kI64};
  Outputs outputs;
  outputs.loss = {&loss, 1, 1, Dtype::kF32};
  const Plan for_card = plan(problem_of(inputs, outputs, {}), caps_of("h200"));
  Workspace workspace(for_card.workspace_bytes);
  EXPECT_EQ(
      error_of(ErrorCode::kUnsupported, [&] { run(for_card, inputs, outputs, workspace.span()); }),
      cuda_refusal());
  EXPECT_EQ(loss, -1.0F);
}

}  // namespace
}  // namespace flce::test
