// SPDX-License-Identifier: Apache-2.0
// Plans of the portable route for CUDA cards that are not at hand: what each method's booking is
// made of, computed here from N, H and V.
#include <gtest/gtest.h>

#include <algorithm>
#include <initializer_list>
#include <string>
#include <string_view>

#include "cuda/plan_backend.hpp"
#include "flce/advice.hpp"
#include "test_plan_support.hpp"

namespace flce::test {
namespace {

constexpr double kGB = 1e9;
constexpr std::uint64_t kMiB = 1024 * 1024;
// The most that a token's statistics and coefficients may take.
constexpr std::uint64_t kTokenBytes = 256;

Plan h200(std::string_view text) {
  ProblemText parsed = parse_problem(text);
  parsed.request.route = Route::kPortable;
  return plan(parsed.problem, caps_of("h200"), parsed.request);
}

Plan h200(const Problem& problem, Method method) {
  return plan(problem, caps_of("h200"), {.method = method, .route = Route::kPortable});
}

double extra_gb(std::string_view text) { return static_cast<double>(h200(text).extra_bytes) / kGB; }

std::uint64_t slot_of(const Plan& plan, Slot slot) {
  return plan.slots[static_cast<std::size_t>(slot)].bytes;
}

// The bytes of `parts`, what belongs to each token, and the rounding of each slot.
void expect_extra(const Plan& plan, std::uint64_t parts) {
  EXPECT_GE(plan.extra_bytes, parts);
  EXPECT_LE(plan.extra_bytes, parts + plan.problem.tokens * kTokenBytes + 64 * 1024);
}

// C*V logits in f32, C*H packed hidden states, 32 MiB for the products, and with several chunks
// V*H in f32 where grad_weight has 16 bits.
TEST(PlanCuda, FusedTakesOneChunkOfLogits) {
  const std::uint64_t logits = 4096ull * 128256 * 4;
  const std::uint64_t hidden = 4096ull * 4096 * 2;
  const std::uint64_t sums = 128256ull * 4096 * 4;
  const std::uint64_t scratch = 32 * kMiB;
  expect_extra(h200("n4096_h4096_v128256 bf16 mean"), logits + hidden + scratch);
  expect_extra(h200("n4096_h4096_v128256 bf16 mean grad_weight=f32"), logits + hidden + scratch);
  expect_extra(h200("n16384_h4096_v128256 bf16 mean"), logits + hidden + scratch + sums);
  expect_extra(h200("n16384_h4096_v128256 bf16 mean grad_weight=f32"), logits + hidden + scratch);
  expect_extra(h200("n8192_h2304_v256000 bf16 mean"),
               4096ull * 256000 * 4 + 4096ull * 2304 * 2 + scratch + 256000ull * 2304 * 4);
}

TEST(PlanCuda, EachSlotIsWhatItSays) {
  const std::uint64_t cv = 4096ull * 128256;
  const std::uint64_t vh = 128256ull * 4096;
  for (const char* dtype : {"bf16", "f16"}) {
    const Plan plan = h200(std::string("n16384_h4096_v128256 ") + dtype + " mean");
    EXPECT_EQ(slot_of(plan, Slot::kKept), cv * 4);
    EXPECT_EQ(slot_of(plan, Slot::kGradientPacked), 0u);  // takes the place of the logits
    EXPECT_EQ(slot_of(plan, Slot::kHiddenPacked), 4096ull * 4096 * 2);
    EXPECT_EQ(slot_of(plan, Slot::kGradWeightAcc), vh * 4);
    EXPECT_EQ(slot_of(plan, Slot::kGemmScratch), 32 * kMiB + 256);  // room to align it
  }
  const Plan f32 = h200("n16384_h4096_v128256 f32 mean");
  EXPECT_EQ(slot_of(f32, Slot::kKept), cv * 4);
  EXPECT_EQ(slot_of(f32, Slot::kGradWeightAcc), 0u);  // summed in the caller's buffer
  const Plan f64 = h200("n16384_h4096_v128256 f64 mean");
  EXPECT_EQ(slot_of(f64, Slot::kKept), cv * 8);
  EXPECT_EQ(slot_of(f64, Slot::kHiddenPacked), 4096ull * 4096 * 8);
  EXPECT_EQ(slot_of(f64, Slot::kGradWeightAcc), 0u);
  EXPECT_EQ(slot_of(h200("n4096_h4096_v128256 bf16 mean"), Slot::kGradWeightAcc), 0u);
}

// Rows of logits begin on cache lines, rows of packed hidden states on 16 bytes, slots on 256.
TEST(PlanCuda, RowsAreWholeLines) {
  const auto slot_bytes = [](std::uint64_t bytes) { return (bytes + 255) / 256 * 256; };
  const Plan bf16 = h200("n100_h65_v1001 bf16 mean");
  EXPECT_EQ(slot_of(bf16, Slot::kKept), 100ull * 1024 * 4);
  EXPECT_EQ(slot_of(bf16, Slot::kHiddenPacked), slot_bytes(100ull * 72 * 2));
  const Plan f64 = h200("n100_h65_v1001 f64 mean");
  EXPECT_EQ(slot_of(f64, Slot::kKept), 100ull * 1008 * 8);
  EXPECT_EQ(slot_of(f64, Slot::kHiddenPacked), slot_bytes(100ull * 66 * 8));
}

TEST(PlanCuda, FusedBeatsNaive) {
  for (const char* sizes : {"n16384_h4096_v128256", "n32768_h4096_v128256", "n16384_h2304_v256000",
                            "n65536_h8192_v128256"}) {
    const std::string text = std::string(sizes) + " bf16 mean method=";
    EXPECT_LT(extra_gb(text + "fused"), 0.6 * extra_gb(text + "naive")) << sizes;
    EXPECT_LT(extra_gb(text + "naive"), 0.4 * extra_gb(text + "naive-eager")) << sizes;
    EXPECT_LT(extra_gb(text + "recompute"), 0.6 * extra_gb(text + "fused")) << sizes;
  }
}

// The chunk rule that others publish, at the shape that they publish: inputs, gradients and all.
TEST(PlanCuda, ThePublishedRuleStaysUnderThePublishedPeak) {
  const Plan liger = h200("n16384_h4096_v128256 bf16 mean policy=liger");
  EXPECT_EQ(liger.chunk, 512);
  EXPECT_EQ(liger.peak_bytes, liger.input_bytes + liger.output_bytes + liger.extra_bytes);
  EXPECT_LE(static_cast<double>(liger.peak_bytes) / kGB, 5.04);
  expect_extra(liger, 512ull * 128256 * 4 + 512ull * 4096 * 2 + 32 * kMiB + 128256ull * 4096 * 4);
}

TEST(PlanCuda, RecomputeTakesLittle) {
  for (const char* sizes : {"n4096_h4096_v128256", "n16384_h4096_v128256", "n8192_h2304_v256000"}) {
    const std::string text = std::string(sizes) + " bf16 mean method=recompute";
    // At 16384 tokens the sums alone take 0.4 GB, and a slab is not made shorter than 8192.
    EXPECT_LE(extra_gb(text), std::string_view(sizes).starts_with("n16384") ? 0.98 : 0.6) << text;
  }
  // One chunk of 16384 tokens, so no accumulator; a slab of 8192 rows of the vocabulary.
  const Plan plan = h200("n16384_h4096_v128256 bf16 mean method=recompute");
  EXPECT_EQ(plan.slab, 8192);
  EXPECT_EQ(slot_of(plan, Slot::kKept), 16384ull * 8192 * 4);
  EXPECT_EQ(slot_of(plan, Slot::kGradHiddenAcc), 16384ull * 4096 * 4);
  expect_extra(plan, 16384ull * 8192 * 4 + 16384ull * 4096 * (4 + 2) + 32 * kMiB);
}

// 128 MiB of logits at a time.
TEST(PlanCuda, ForwardOnlyTakesNextToNothing) {
  for (const char* sizes : {"n4096_h4096_v128256", "n16384_h4096_v128256", "n8192_h2304_v256000"}) {
    const std::string text =
        std::string(sizes) + " bf16 mean no_grad_hidden no_grad_weight lse logprob entropy";
    const Plan plan = h200(text);
    EXPECT_EQ(slot_of(plan, Slot::kKept), 128 * kMiB) << text;
    const auto hidden = static_cast<std::uint64_t>(4096 * plan.problem.hidden * 2);
    expect_extra(plan, hidden + (128 + 32) * kMiB);
  }
}

TEST(PlanCuda, TheDefaultChunkIs4096Tokens) {
  EXPECT_EQ(h200("n16384_h4096_v128256 bf16 mean").chunk, 4096);
  EXPECT_EQ(h200("n1000_h4096_v128256 bf16 mean").chunk, 1000);
  EXPECT_EQ(h200("n16384_h4096_v128256 bf16 mean policy=liger").chunk, 512);
  EXPECT_EQ(h200("n16384_h4096_v128256 bf16 mean chunk=99999").chunk, 16384);
}

// Case 101: many tokens of a chunk, whatever V/H is.
TEST(PlanCuda, C101_ChunksAreNeverTiny) {
  for (const char* sizes : {"n512_h4096_v128256", "n8192_h4096_v128256", "n65536_h4096_v128256",
                            "n8192_h4096_v32000"}) {
    const Plan plan = h200(std::string(sizes) + " bf16 mean");
    EXPECT_GE(plan.chunk, std::min<std::int64_t>(plan.problem.tokens, 1024)) << sizes;
  }
}

TEST(PlanCuda, NaiveAndChunkedKeepEveryLogit) {
  const std::uint64_t nv = 16384ull * 128256;
  const std::uint64_t scratch = 32 * kMiB;
  const Plan naive = h200("n16384_h4096_v128256 bf16 mean method=naive");
  EXPECT_EQ(slot_of(naive, Slot::kKept), nv * 4);
  EXPECT_EQ(naive.chunk, 16384);
  expect_extra(naive, nv * 4 + 16384ull * 4096 * 2 + scratch);
  const Plan chunked = h200("n16384_h4096_v128256 bf16 mean method=chunked chunk=1024");
  EXPECT_EQ(slot_of(chunked, Slot::kKept), nv * 4);
  expect_extra(chunked, nv * 4 + 1024ull * (128256 + 4096) * 2 + scratch + 128256ull * 4096 * 4);
}

// A backward call may come again, so the logits stay beside their gradient; `fused` is done when
// its forward call returns, and keeps only the sums of the loss.
TEST(PlanCuda, WhatTwoCallsKeep) {
  Problem p = problem_by("n4096_h4096_v128256 bf16 mean");
  p.pass = Pass::kForwardBackward;
  const std::uint64_t nv = 4096ull * 128256;
  const Plan naive = h200(p, Method::kNaive);
  EXPECT_TRUE(naive.slots[static_cast<std::size_t>(Slot::kKept)].saved);
  EXPECT_EQ(slot_of(naive, Slot::kGradientPacked), nv * 2);
  expect_extra(naive, nv * (4 + 2) + 4096ull * 4096 * 2 + 32 * kMiB);
  EXPECT_LE(h200(p, Method::kFused).saved_bytes, 256u);
  const Plan recompute = h200(p, Method::kRecompute);
  EXPECT_LE(recompute.saved_bytes, 4096 * kTokenBytes);
}

TEST(PlanCuda, PlansF64) {
  const Plan plan = h200("n64_h32_v1000 f64 mean");
  EXPECT_EQ(static_cast<int>(plan.route), static_cast<int>(Route::kPortable));
  EXPECT_GT(plan.extra_bytes, 64ull * 1000 * 8);
}

TEST(PlanCuda, RefusesPartOfAHeadByName) {
  Problem p = problem_by("n4_h4_v4 bf16 mean");
  p.shard = {4, 8};
  const std::string text =
      error_of(ErrorCode::kUnsupported, [&] { return plan(p, caps_of("h200")); });
  EXPECT_TRUE(contains(text, "split over ranks")) << text;
}

TEST(PlanCuda, ThePlanningHalfRunsNothing) {
  const std::string text =
      error_of(ErrorCode::kInternal, [] { cuda_plan_backend().scan_targets(Step{}); });
  EXPECT_TRUE(contains(text, "planning half")) << text;
}

TEST(PlanCuda, RoutesAndTf32AreForCards) {
  const Problem p = problem_by("n4_h4_v4 f32 mean");
  EXPECT_EQ(static_cast<int>(plan(p, caps_of("h200"), {.allow_tf32 = true}).route),
            static_cast<int>(Route::kPortable));
  error_of(ErrorCode::kUnsupported, [&] { return plan(p, fixed_cpu(), {.allow_tf32 = true}); });
  error_of(ErrorCode::kUnsupported,
           [&] { return plan(p, fixed_cpu(), {.route = Route::kPortable}); });
  const Problem bf16 = problem_by("n4_h4_v4 bf16 mean");
  error_of(ErrorCode::kUnsupported,
           [&] { return plan(bf16, caps_of("h200"), {.allow_tf32 = true}); });
}

// The published rule leaves 128 rows at N = 4096 and is several times slower.
TEST(PlanCuda, TheRooflineKnowsWhatSmallChunksCost) {
  const double large = h200("n4096_h4096_v128256 bf16 mean").seconds;
  const double small = h200("n4096_h4096_v128256 bf16 mean policy=liger").seconds;
  EXPECT_GT(small, 3.0 * large);
  EXPECT_LT(small, 4.5 * large);
  const double recompute = h200("n4096_h4096_v128256 bf16 mean method=recompute").seconds;
  EXPECT_GT(recompute, 1.2 * large);
  EXPECT_LT(recompute, 1.6 * large);
}

// Medians of bench/results/h200 (2026-12-01).
TEST(PlanCuda, TheEstimateIsNearWhatAnH200Took) {
  struct Measured {
    const char* rest;
    double ms;
  };
  const auto check = [](const std::string& sizes, std::initializer_list<Measured> all) {
    for (const Measured& one : all) {
      const double ms = 1e3 * h200(sizes + " bf16 mean " + one.rest).seconds;
      EXPECT_GT(ms, 0.85 * one.ms) << sizes << " " << one.rest;
      EXPECT_LT(ms, 1.10 * one.ms) << sizes << " " << one.rest;
    }
  };
  constexpr const char* kForward = "no_grad_hidden no_grad_weight";
  check("n4096_h4096_v128256", {{"method=naive", 19.09},
                                {"method=chunked", 19.85},
                                {"method=fused", 19.70},
                                {"method=recompute", 27.47},
                                {kForward, 7.77},
                                {"method=naive-eager", 25.35},
                                {"method=fused chunk=128", 72.39}});
  check("n8192_h2304_v256000", {{"method=naive", 46.38},
                                {"method=chunked", 47.93},
                                {"method=fused", 49.80},
                                {"method=recompute", 66.24},
                                {kForward, 19.30},
                                {"method=naive-eager", 62.78},
                                {"method=fused chunk=128", 171.65}});
  check("n16384_h4096_v128256", {{"method=naive", 80.90},
                                 {"method=chunked", 82.55},
                                 {"method=recompute", 114.94},
                                 {kForward, 30.13},
                                 {"method=naive-eager", 95.80},
                                 {"method=fused chunk=64", 569.38},
                                 {"method=fused chunk=128", 287.78},
                                 {"method=fused chunk=256", 157.29},
                                 {"method=fused chunk=512", 104.68},
                                 {"method=fused chunk=1024", 90.06},
                                 {"method=fused chunk=2048", 77.30},
                                 {"method=fused chunk=4096", 80.61},
                                 {"method=fused chunk=8192", 79.86},
                                 {"method=fused chunk=16384", 79.90}});
}

TEST(PlanCuda, CardsAreKnownByName) {
  for (const char* name : {"a100-40", "a100-80", "h100-80", "h200", "b200", "rtx4090", "l40s"}) {
    const DeviceCaps caps = caps_of(name);
    EXPECT_EQ(static_cast<int>(caps.kind), static_cast<int>(DeviceKind::kCuda));
    EXPECT_STREQ(caps.name.data(), name);
    EXPECT_GT(caps.memory_bytes, 20'000'000'000u);
    EXPECT_GT(caps.matmul_flops, 1e13);
    EXPECT_GT(caps.bandwidth_bytes, 1e11);
    EXPECT_TRUE(contains(known_caps(), name));
  }
  const std::string text = error_of(ErrorCode::kInvalidArgument, [] { return caps_of("h300"); });
  EXPECT_TRUE(contains(text, "h300") && contains(text, "h200")) << text;
}

TEST(PlanCuda, TheLargestNumberOfTokensReallyIsTheLargest) {
  const DeviceCaps card = caps_of("a100-80");
  std::int64_t previous = 0;
  for (const Method method : {Method::kNaiveEager, Method::kNaive, Method::kFused}) {
    const PlanRequest request{.method = method};
    Problem p = problem_by("n0_h4096_v128256 bf16 mean");
    const std::int64_t largest = largest_tokens(p, card, request);
    EXPECT_GT(largest, previous) << name_of(method);
    previous = largest;
    p.tokens = largest;
    EXPECT_LE(plan(p, card, request).peak_bytes, card.memory_bytes);
    p.tokens = largest + 1;
    error_of(ErrorCode::kOutOfBudget, [&] { return plan(p, card, request); });
  }
}

TEST(PlanCuda, TheLargestNumberOfTokensComesInWholeSequences) {
  Problem p = problem_by("n0_h4096_v128256 bf16 mean shift=1 sequence_length=4096");
  const std::int64_t largest = largest_tokens(p, caps_of("h200"), {.method = Method::kNaive});
  EXPECT_GT(largest, 0);
  EXPECT_EQ(largest % 4096, 0);
  DeviceCaps tiny = caps_of("h200");
  tiny.memory_bytes = 1000;
  EXPECT_EQ(largest_tokens(p, tiny, {}), 0);
  tiny.memory_bytes = 0;
  error_of(ErrorCode::kInvalidArgument, [&] { return largest_tokens(p, tiny, {}); });
}

}  // namespace
}  // namespace flce::test
