// SPDX-License-Identifier: Apache-2.0
// Which route a card's plan takes, why not the other one, and what happens to who insists. Holds
// for builds with and without the Hopper kernels.
#include <gtest/gtest.h>

#include <array>
#include <initializer_list>
#include <string>
#include <string_view>

#include "cuda/route.hpp"
#include "plan/caps.hpp"
#include "test_plan_support.hpp"

namespace flce::test {
namespace {

constexpr const char* kNeedsHopper = "this build is without the Hopper kernels";

Plan report_on(const char* card, const std::string& text) {
  const ProblemText parsed = parse_problem(text);
  return plan_report(parsed.problem, caps_of(card), parsed.request);
}

void expect_route(const Plan& plan, Route route) {
  EXPECT_STREQ(name_of(plan.route), name_of(route)) << format_problem(plan.problem);
}

std::string reason_of(const Plan& plan, Method method) {
  return report_of(plan, method).route_reason.data();
}

TEST(PlanRoute, NamesAndNumbers) {
  EXPECT_EQ(static_cast<int>(route_of("hopper")), 2);
  EXPECT_STREQ(name_of(Route::kHopper), "hopper");
  const ProblemText parsed = parse_problem("n4_h8_v9 bf16 mean route=hopper");
  EXPECT_STREQ(name_of(parsed.request.route), "hopper");
  EXPECT_TRUE(contains(format_problem(parsed.problem, parsed.request), "route=hopper"));
  const std::string text = error_of(ErrorCode::kInvalidArgument, [] { return route_of("fast"); });
  EXPECT_TRUE(contains(text, "auto, portable, hopper")) << text;
  const std::string number = error_of(ErrorCode::kInvalidArgument, [] {
    return plan(problem_by("n4_h8_v9"), caps_of("h200"), {.route = static_cast<Route>(3)});
  });
  EXPECT_TRUE(contains(number, "portable (1) and hopper (2)")) << number;
}

TEST(PlanRoute, CapabilitiesOfCards) {
  EXPECT_EQ(capability_of(caps_of("h200")), 90);
  EXPECT_EQ(capability_of(caps_of("h100-80")), 90);
  EXPECT_EQ(capability_of(caps_of("a100-80")), 80);
  EXPECT_EQ(capability_of(caps_of("b200")), 100);
  EXPECT_EQ(capability_of(caps_of_product("NVIDIA H100 80GB HBM3", 1)), 90);
  EXPECT_EQ(capability_of(caps_of_product("NVIDIA Unknown", 1)), 0);
  EXPECT_EQ(capability_of(fixed_cpu()), 0);
}

TEST(PlanRoute, HopperServesFusedAndRecompute) {
  if (!cuda::has_hopper()) GTEST_SKIP() << kNeedsHopper;
  for (const char* text : {"n4096_h4096_v128256 bf16 mean", "n37_h72_v129 bf16 none lse logprob",
                           "n64_h8_v1000 bf16 sum z_loss=1e-4 class_weight token_weight split",
                           "n64_h64_v1000 bf16 sum grad_weight=f32 accumulate scale=2 num_valid",
                           "n64_h64_v1000 bf16 mean no_grad_hidden no_grad_weight",
                           "n64_h64_v1000 bf16 mean bias grad_bias softcap=30",
                           "n64_h64_v1000 bf16 none entropy argmax num_correct",
                           "n64_h64_v1000 bf16 mean label_smoothing=0.1 bias class_weight",
                           "n64_h64_v1000 bf16 none entropy grad_entropy upstream=per_token"}) {
    for (const char* card : {"h200", "h100-80", "gh200-96"}) {
      const Plan report = report_on(card, text);
      const MethodReport& recompute = report_of(report, Method::kRecompute);
      EXPECT_STREQ(name_of(recompute.route), "hopper") << text;
      EXPECT_EQ(reason_of(report, Method::kRecompute), "") << text;
    }
  }
  const Plan fused = report_on("h200", "n4096_h4096_v128256 bf16 mean method=fused");
  expect_route(fused, Route::kHopper);
  EXPECT_EQ(describe_products(fused), "");
  const Plan naive = report_on("h200", "n4096_h4096_v128256 bf16 mean method=naive");
  expect_route(naive, Route::kPortable);
  EXPECT_EQ(reason_of(naive, Method::kNaive), "it computes fused and recompute, not naive");
  EXPECT_EQ(reason_of(naive, Method::kFused), "");
}

struct Exclusion {
  const char* text;    // what the problem has
  const char* reason;  // a part of the reason
};
constexpr Exclusion kExclusions[] = {
    {"n64_h64_v1000 f16 mean", "bf16, not f16"},
    {"n64_h64_v1000 f32 mean", "bf16, not f32"},
    {"n64_h65_v1000 bf16 mean", "multiple of 8, not 65"},
    {"n64_h4_v1000 bf16 mean", "multiple of 8, not 4"},
    {"n64_h64_v16777216 bf16 mean", "fewer than 16777216 vocabulary rows, not 16777216"},
    {"n0_h64_v1000 bf16 mean", "1 token or more"},
    {"n8_h1048576_v1000 bf16 mean", "below 1048576, not 1048576"},
    {"n64_h64_v1000 bf16 mean softcap=1000", "softcaps from 0.000977 to 128, not 1e+03"},
    {"n64_h64_v1000 bf16 mean label_smoothing=0.1 softcap=30", "label smoothing together"},
    {"n64_h64_v1000 bf16 mean topk=5", "top-k"},
};

TEST(PlanRoute, EachExclusionHasItsReason) {
  if (!cuda::has_hopper()) GTEST_SKIP() << kNeedsHopper;
  for (const Exclusion& one : kExclusions) {
    const std::string text = std::string(one.text) + " method=recompute";
    const Plan automatic = report_on("h200", text);
    expect_route(automatic, Route::kPortable);
    const std::string reason = reason_of(automatic, Method::kRecompute);
    EXPECT_TRUE(contains(reason, one.reason)) << text << ": " << reason;
    const Plan forced = report_on("h200", text + " route=hopper");
    EXPECT_STREQ(name_of(forced.method), "auto") << text;
    const std::string_view refusal = view_text(report_of(forced, Method::kRecompute).refusal);
    EXPECT_TRUE(contains(refusal, one.reason)) << text << ": " << refusal;
    EXPECT_TRUE(contains(refusal, "route=portable works")) << text << ": " << refusal;
  }
  EXPECT_EQ(
      cuda::choose_route(problem_by("n1_h8_v1 bf16 mean"), caps_of("h200"), {}, Method::kRecompute)
          .route,
      Route::kHopper);
  Problem shard = problem_by("n4_h8_v4 bf16 mean");
  shard.shard = {4, 8};
  EXPECT_TRUE(contains(cuda::choose_route(shard, caps_of("h200"), {}, Method::kFused).reason.data(),
                       "ranks"));
}

TEST(PlanRoute, PortableIsNeverExplainedWhereItWasAskedFor) {
  for (const char* card : {"h200", "a100-80", "b200"}) {
    const Plan asked = report_on(card, "n64_h64_v1000 bf16 mean bias route=portable method=fused");
    expect_route(asked, Route::kPortable);
    EXPECT_EQ(reason_of(asked, Method::kFused), "");
  }
  const Plan automatic = report_on("a100-80", "n64_h64_v1000 bf16 mean method=fused");
  expect_route(automatic, Route::kPortable);
  EXPECT_EQ(reason_of(automatic, Method::kFused), "");
}

TEST(PlanRoute, AForcedRouteIsRefusedOnOtherCards) {
  const Plan refused = report_on("a100-80", "n64_h64_v1000 bf16 mean route=hopper");
  EXPECT_STREQ(name_of(refused.method), "auto");
  // What the methods need stands, for comparison.
  EXPECT_GT(report_of(refused, Method::kNaiveEager).peak_bytes, 0U);
  const std::string text = error_of(ErrorCode::kUnsupported, [] {
    return plan(problem_by("n64_h64_v1000 bf16 mean"), caps_of("a100-80"),
                {.route = Route::kHopper});
  });
  for (const char* part : {"route hopper", "9.0", "a100-80", "route=portable works"}) {
    EXPECT_TRUE(contains(text, part)) << text;
  }
  const std::string cpu = error_of(ErrorCode::kUnsupported, [] {
    return plan(problem_by("n64_h64_v1000 bf16 mean"), fixed_cpu(), {.route = Route::kHopper});
  });
  EXPECT_TRUE(contains(cpu, "route hopper is for CUDA devices")) << cpu;
}

TEST(PlanRoute, AForcedRouteChoosesAmongTheMethodsThatItComputes) {
  if (!cuda::has_hopper()) {
    const std::string text = error_of(ErrorCode::kUnsupported, [] {
      return plan(problem_by("n64_h64_v1000 bf16 mean"), caps_of("h200"),
                  {.route = Route::kHopper});
    });
    EXPECT_TRUE(contains(text, "without its kernels")) << text;
    return;
  }
  const Plan forced = report_on("h200", "n64_h64_v1000 bf16 mean route=hopper");
  expect_route(forced, Route::kHopper);
  EXPECT_TRUE(report_of(forced, Method::kNaive).refused());
  // A plan is made again with its own method, chunk and route: it must be the same one.
  const Plan again = plan(forced.problem, forced.caps,
                          {.method = forced.method, .chunk = forced.chunk, .route = forced.route});
  EXPECT_EQ(again.extra_bytes, forced.extra_bytes);
  expect_route(again, Route::kHopper);
}

// A forward call and its backward call may see a weight at different addresses, and so be planned
// for different routes (bindings/python).
TEST(PlanRoute, WhatAForwardCallSavesDoesNotDependOnTheRoute) {
  if (!cuda::has_hopper()) GTEST_SKIP() << kNeedsHopper;
  const std::string text = "n100_h64_v1000 bf16 mean split upstream=scalar method=";
  for (const char* method : {"fused", "recompute"}) {
    const Plan hopper = report_on("h200", text + method + " route=hopper");
    const Plan portable = report_on("h200", text + method + " route=portable");
    expect_route(hopper, Route::kHopper);
    EXPECT_EQ(hopper.saved_bytes, portable.saved_bytes);
    for (std::size_t i = 0; i < hopper.slots.size(); ++i) {
      if (!portable.slots[i].saved && !hopper.slots[i].saved) continue;
      EXPECT_TRUE(hopper.slots[i] == portable.slots[i]) << name_of(static_cast<Slot>(i));
    }
  }
}

// Whoever plans without addresses is told at the call. Rows of hidden may begin anywhere.
TEST(PlanRoute, UnalignedRowsAreRefusedByTheHopperRoute) {
  alignas(64) std::array<std::uint16_t, 3 * 24> memory[4]{};
  std::int64_t target[2]{};
  float loss = 0.0F;
  const auto view = [&](int i, std::int64_t rows, std::int64_t stride, int shift) {
    return MatrixView{memory[i].data() + shift, rows, 8, stride, 1, Dtype::kBF16};
  };
  const auto refusal = [&](std::int64_t stride, int shift, int odd) {
    const auto one = [&](int i, std::int64_t rows) {
      return i == odd ? view(i, rows, stride, shift) : view(i, rows, 16, 0);
    };
    Inputs inputs;
    inputs.hidden = one(0, 2);
    inputs.weight = one(1, 3);
    inputs.target = {target, 2, 1, Dtype::kI64};
    Outputs outputs;
    outputs.loss = {&loss, 1, 1, Dtype::kF32};
    outputs.grad_hidden = one(2, 2);
    outputs.grad_weight = one(3, 3);
    Plan made = plan(problem_of(inputs, outputs, {}), caps_of("h200"),
                     {.method = Method::kFused, .route = Route::kPortable});
    made.route = Route::kHopper;
    Workspace workspace(made.workspace_bytes);
    try {
      run(made, inputs, outputs, workspace.span());
    } catch (const Error& error) {
      return std::string(error.what());
    }
    return std::string();
  };
  const char* names[] = {"hidden", "weight", "grad_hidden", "grad_weight"};
  for (int i = 0; i < 4; ++i) {
    for (const std::string& text : {refusal(12, 0, i), refusal(16, 4, i)}) {
      EXPECT_EQ(text.rfind(std::string(names[i]) + " is at address 0x", 0), 0U) << text;
      EXPECT_TRUE(contains(text, "route portable (PlanRequest::route) takes any")) << text;
    }
  }
  // Aligned, it gets as far as this machine's lack of a card, or of memory there.
  EXPECT_FALSE(contains(refusal(16, 0, 1), "route hopper needs"));
}

}  // namespace
}  // namespace flce::test
