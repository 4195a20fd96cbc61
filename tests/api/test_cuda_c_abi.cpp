// SPDX-License-Identifier: Apache-2.0
// The C interface on a card, with its memory from flce/device.hpp. Values of case 14 of the list of
// known faults, float64 results.
#include <gtest/gtest.h>

#include <array>
#include <cstring>
#include <span>
#include <string>
#include <vector>

#include "flce/device.hpp"
#include "flce/flce.h"

namespace flce::test {
namespace {

template <typename Number>
DeviceMemory on_card(const std::vector<Number>& values) {
  DeviceMemory memory(values.size() * sizeof(Number));
  memory.upload(std::as_bytes(std::span(values)));
  return memory;
}

std::vector<float> floats_of(const DeviceMemory& memory, std::size_t count) {
  std::vector<float> values(count);
  memory.download(std::as_writable_bytes(std::span(values)));
  return values;
}

// x = ones(4,1), W = [2, 0]^T, y = [0,1,1,1].
class CudaCAbi : public testing::Test {
 protected:
  CudaCAbi() {
    EXPECT_EQ(flce_args_init(&args, sizeof args), FLCE_OK) << flce_last_error();
    args.hidden = {hidden.data(), 4, 1, 1, 1, FLCE_F32, 0};
    args.weight = {weight.data(), 2, 1, 1, 1, FLCE_F32, 0};
    args.target = {target.data(), 4, 1, FLCE_I64, 0};
    args.loss = {loss.data(), 1, 1, FLCE_F32, 0};
    args.grad_hidden = {grad_hidden.data(), 4, 1, 1, 1, FLCE_F32, 0};
    args.grad_weight = {grad_weight.data(), 2, 1, 1, 1, FLCE_F32, 0};
    args.device = FLCE_DEVICE_CUDA;
    args.stream = stream.handle();
    plan.struct_size = sizeof plan;
  }
  void make_plan() {
    ASSERT_EQ(flce_make_plan(&args, nullptr, &plan), FLCE_OK) << flce_last_error();
    workspace = DeviceMemory(plan.workspace_bytes);
    saved = DeviceMemory(plan.saved_bytes);
  }
  flce_status run() { return flce_run(&args, &plan, workspace.data(), plan.workspace_bytes); }

  CudaStream stream;
  DeviceMemory hidden = on_card<float>({1, 1, 1, 1});
  DeviceMemory weight = on_card<float>({2, 0});
  DeviceMemory target = on_card<std::int64_t>({0, 1, 1, 1});
  DeviceMemory loss{4};
  DeviceMemory grad_hidden{16};
  DeviceMemory grad_weight{8};
  DeviceMemory workspace;
  DeviceMemory saved;
  flce_args args{};
  flce_plan plan{};
};

TEST_F(CudaCAbi, RunsOnAStream) {
  make_plan();
  EXPECT_EQ(plan.route, FLCE_ROUTE_PORTABLE);
  ASSERT_EQ(run(), FLCE_OK) << flce_last_error();
  stream.synchronize();
  EXPECT_NEAR(floats_of(loss, 1)[0], 1.6269280, 2e-6);
  EXPECT_NEAR(floats_of(grad_weight, 2)[0], 0.6307971, 2e-6);
  EXPECT_NEAR(floats_of(grad_hidden, 4)[3], 0.4403985, 2e-6);
}

TEST_F(CudaCAbi, TwoCallsAndAScale) {
  const DeviceMemory upstream = on_card<float>({3});
  args.pass = FLCE_PASS_FORWARD_BACKWARD;
  args.grad_output = {upstream.data(), 1, 1, FLCE_F32, 0};
  make_plan();
  ASSERT_EQ(flce_forward(&args, &plan, workspace.data(), plan.workspace_bytes, saved.data(),
                         plan.saved_bytes),
            FLCE_OK)
      << flce_last_error();
  ASSERT_EQ(flce_backward(&args, &plan, workspace.data(), plan.workspace_bytes, saved.data(),
                          plan.saved_bytes),
            FLCE_OK)
      << flce_last_error();
  stream.synchronize();
  EXPECT_NEAR(floats_of(grad_weight, 2)[0], 3 * 0.6307971, 4e-6);
  ASSERT_EQ(flce_scale_grads_on(FLCE_DEVICE_CUDA, stream.handle(), &args.grad_output, nullptr,
                                &args.grad_weight, nullptr),
            FLCE_OK)
      << flce_last_error();
  stream.synchronize();
  EXPECT_NEAR(floats_of(grad_weight, 2)[1], -9 * 0.6307971, 2e-5);
}

TEST_F(CudaCAbi, ATargetOutOfRangeIsAnErrorOnRequest) {
  const std::vector<std::int64_t> bad{0, 17, 1, 1};
  target.upload(std::as_bytes(std::span(bad)));
  make_plan();
  args.check_targets = 1;
  EXPECT_EQ(run(), FLCE_TARGET_OUT_OF_RANGE);
  EXPECT_NE(std::string(flce_last_error()).find("17"), std::string::npos) << flce_last_error();
  args.check_targets = 0;
  EXPECT_EQ(run(), FLCE_OK) << flce_last_error();
  stream.synchronize();
}

TEST_F(CudaCAbi, PlansOfAnOlderCallerRun) {
  plan.struct_size = 96;
  make_plan();
  ASSERT_EQ(run(), FLCE_OK) << flce_last_error();
  stream.synchronize();
  EXPECT_NEAR(floats_of(loss, 1)[0], 1.6269280, 2e-6);
}

}  // namespace
}  // namespace flce::test
