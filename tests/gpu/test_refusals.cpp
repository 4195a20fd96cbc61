// SPDX-License-Identifier: Apache-2.0
// What a card cannot take is refused before any work, with the name of the argument.
#include <gtest/gtest.h>

#include <functional>
#include <string>
#include <vector>

#include "flce/device.hpp"
#include "support/mirrors.hpp"
#include "support/params.hpp"
#include "support/wants.hpp"

namespace flce_test {
namespace {

using flce::Dtype;

// A small call with every input and output, on the host and on the card.
class GpuRefusals : public testing::Test {
 protected:
  static Case full_case() {
    Case c = basic_case({12, 8, 40}, Dtype::kBF16, 70);
    Rng rng(71);
    c.in.reduction = oracle::Reduction::kNone;
    c.in.bias = random_normals(c.dtype, 40, 1.0, rng);
    c.in.class_weight = random_weights(c, 40, rng);
    c.in.token_weight = random_weights(c, 12, rng);
    c.in.temperature_per_token = random_weights(c, 12, rng);
    c.in.grad_output = random_normals(c.dtype, 12, 1.0, rng);
    c.in.topk = 2;
    c.wants = every_output(2);
    return c;
  }

  void SetUp() override {
    plan_ = flce::plan(memory_.problem(case_), caps_with(1));
    workspace_ = std::make_unique<Block>(plan_.workspace_bytes);
    inputs_ = mirrors_.inputs(memory_.inputs());
    outputs_ = mirrors_.outputs(memory_.outputs());
    device_workspace_ = mirrors_.span(workspace_->span());
  }

  // The error of a call, which must leave every output as it was.
  std::string refusal_of(const flce::Inputs& inputs, const flce::Outputs& outputs,
                         std::span<std::byte> workspace) {
    try {
      flce::run(plan_, inputs, outputs, workspace);
    } catch (const flce::Error& error) {
      EXPECT_TRUE(error.code() == flce::ErrorCode::kInvalidArgument ||
                  error.code() == flce::ErrorCode::kWorkspaceTooSmall ||
                  error.code() == flce::ErrorCode::kUnsupported)
          << error.what();
      flce::cuda_synchronize();
      mirrors_.download();
      EXPECT_EQ(memory_.written(), "") << error.what();
      return error.what();
    }
    return "accepted";
  }

  const Case case_ = full_case();
  const Memory memory_{case_};
  Mirrors mirrors_;
  std::unique_ptr<Block> workspace_;
  std::span<std::byte> device_workspace_;
  flce::Plan plan_;
  flce::Inputs inputs_;
  flce::Outputs outputs_;
};

void expect_words(const std::string& text, std::initializer_list<const char*> words) {
  for (const char* word : words) EXPECT_NE(text.find(word), std::string::npos) << text;
}

// Case 95.
TEST_F(GpuRefusals, C095_HostMemoryIsRefusedByName) {
  const flce::Inputs host = memory_.inputs();
  const auto expect_refused = [&](const char* name, auto member) {
    flce::Inputs inputs = inputs_;
    inputs.*member = host.*member;
    expect_words(refusal_of(inputs, outputs_, device_workspace_), {name});
  };
  expect_refused("hidden", &flce::Inputs::hidden);
  expect_refused("weight", &flce::Inputs::weight);
  expect_refused("target", &flce::Inputs::target);
  expect_refused("bias", &flce::Inputs::bias);
  expect_refused("class_weight", &flce::Inputs::class_weight);
  expect_refused("token_weight", &flce::Inputs::token_weight);
  expect_refused("temperature", &flce::Inputs::temperature);
  expect_refused("grad_output", &flce::Inputs::grad_output);
}

TEST_F(GpuRefusals, C095_HostMemoryForResultsIsRefusedByName) {
  const flce::Outputs host = memory_.outputs();
  const auto expect_refused = [&](const char* name, auto member) {
    flce::Outputs outputs = outputs_;
    outputs.*member = host.*member;
    expect_words(refusal_of(inputs_, outputs, device_workspace_), {name});
  };
  expect_refused("loss", &flce::Outputs::loss);
  expect_refused("lse", &flce::Outputs::lse);
  expect_refused("argmax", &flce::Outputs::argmax);
  expect_refused("num_valid", &flce::Outputs::num_valid);
  expect_refused("topk_index", &flce::Outputs::topk_index);
  expect_refused("grad_hidden", &flce::Outputs::grad_hidden);
  expect_refused("grad_weight", &flce::Outputs::grad_weight);
  expect_refused("grad_bias", &flce::Outputs::grad_bias);
  expect_words(refusal_of(inputs_, outputs_, workspace_->span()), {"workspace"});
}

TEST_F(GpuRefusals, AWorkspaceOneByteShort) {
  const std::string text =
      refusal_of(inputs_, outputs_, device_workspace_.first(device_workspace_.size() - 1));
  expect_words(text, {"workspace", std::to_string(plan_.workspace_bytes).c_str()});
}

TEST_F(GpuRefusals, WeightRowsThatOverlapOrRunBackwards) {
  for (const std::int64_t stride : {0, -8, 7}) {
    flce::Inputs inputs = inputs_;
    inputs.weight.row_stride = stride;
    if (stride < 0) {
      inputs.weight.data = static_cast<std::byte*>(inputs.weight.data) + 39 * 8 * 2;
    }
    expect_words(refusal_of(inputs, outputs_, device_workspace_), {"weight", "stride"});
  }
}

// A forward call has to know the upstream gradient's type; its memory may be anywhere.
TEST_F(GpuRefusals, AForwardCallDoesNotLookAtTheUpstreamGradient) {
  const flce::Problem problem = [&] {
    flce::Problem p = memory_.problem(case_);
    p.pass = flce::Pass::kForwardBackward;
    return p;
  }();
  const flce::Plan plan = flce::plan(problem, caps_with(1), {.method = flce::Method::kRecompute});
  const Block workspace(plan.workspace_bytes);
  const Block saved(plan.saved_bytes);
  const std::span<std::byte> on_card = mirrors_.span(workspace.span());
  const std::span<std::byte> saved_on_card = mirrors_.span(saved.span());
  flce::Inputs inputs = inputs_;
  inputs.grad_output = memory_.inputs().grad_output;
  flce::forward(plan, inputs, outputs_, on_card, saved_on_card);
  try {
    flce::backward(plan, inputs, outputs_, on_card, saved_on_card);
    ADD_FAILURE() << "accepted";
  } catch (const flce::Error& error) {
    expect_words(error.what(), {"grad_output", "host memory"});
  }
  flce::backward(plan, inputs_, outputs_, on_card, saved_on_card);
  flce::cuda_synchronize();
}

TEST_F(GpuRefusals, TheSameCallIsTakenWhenNothingIsWrong) {
  EXPECT_EQ(refusal_of(inputs_, outputs_, device_workspace_), "accepted");
  flce::cuda_synchronize();
  mirrors_.download();
  EXPECT_EQ(memory_.damage(), "");
}

TEST_F(GpuRefusals, AnErrorLeavesTheCardUsable) {
  flce::Inputs inputs = inputs_;
  inputs.hidden = memory_.inputs().hidden;
  EXPECT_NE(refusal_of(inputs, outputs_, device_workspace_), "accepted");
  EXPECT_EQ(refusal_of(inputs_, outputs_, device_workspace_), "accepted");
  flce::cuda_synchronize();
}

}  // namespace
}  // namespace flce_test
