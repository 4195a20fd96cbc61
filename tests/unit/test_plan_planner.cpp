// SPDX-License-Identifier: Apache-2.0
// What the planner chooses and refuses, that it is pure, and that no size makes it overflow.
#include <gtest/gtest.h>

#include <cstdlib>
#include <new>

#include "core/int_math.hpp"
#include "flce/advice.hpp"
#include "test_plan_support.hpp"

namespace {
thread_local std::int64_t allocations = 0;
}

// Counts what planning allocates. Sanitizers bring their own operators, so it stays out of their
// way.
#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)
#define FLCE_COUNTS_ALLOCATIONS 1
void* operator new(std::size_t bytes) {
  ++allocations;
  if (void* memory = std::malloc(bytes > 0 ? bytes : 1)) return memory;
  throw std::bad_alloc();
}
void operator delete(void* memory) noexcept { std::free(memory); }
void operator delete(void* memory, std::size_t) noexcept { std::free(memory); }
#else
#define FLCE_COUNTS_ALLOCATIONS 0
#endif

namespace flce::test {
namespace {

constexpr const char* kProblem = "n2000_h64_v5000 bf16 mean";

TEST(Planner, PrefersFusedAndReportsEveryMethod) {
  const Plan p = plan(problem_by(kProblem), fixed_cpu());
  EXPECT_EQ(p.method, Method::kFused);
  EXPECT_GE(p.chunk, 1);
  EXPECT_LE(p.chunk, 2000);
  EXPECT_EQ(p.num_chunks, ceil_div(2000, p.chunk));
  EXPECT_EQ(p.extra_bytes, p.workspace_bytes + p.saved_bytes);
  EXPECT_EQ(p.peak_bytes, p.input_bytes + p.output_bytes + p.extra_bytes);
  for (int i = 0; i < kNumMethods - 1; ++i) {
    const MethodReport& report = p.methods[static_cast<std::size_t>(i)];
    EXPECT_EQ(static_cast<int>(report.method), i + 1);
    EXPECT_FALSE(report.refused()) << report.refusal.data();
    EXPECT_EQ(report.peak_bytes, p.input_bytes + p.output_bytes + report.extra_bytes);
    EXPECT_EQ(report.gemms, report.method == Method::kRecompute ? 4 : 3);
  }
}

TEST(Planner, TakesRecomputeWhenTheUpstreamComesLater) {
  const Problem problem = problem_by("n2000_h64_v5000 bf16 none upstream=per_token split");
  const Plan p = plan(problem, fixed_cpu());
  EXPECT_EQ(p.method, Method::kRecompute);
  EXPECT_GT(p.saved_bytes, 0u);
  EXPECT_TRUE(report_of(p, Method::kFused).refused());
  const std::string text = error_of(ErrorCode::kUnsupported, [&] {
    return plan(problem, fixed_cpu(), {.method = Method::kFused});
  });
  EXPECT_TRUE(contains(text, "fused") && contains(text, "recompute")) << text;
  const Plan report = plan_report(problem, fixed_cpu(), {.method = Method::kFused});
  EXPECT_EQ(report.method, Method::kAuto);
  EXPECT_EQ(std::string(report_of(report, Method::kFused).refusal.data()),
            std::string(report_of(p, Method::kFused).refusal.data()));
}

TEST(Planner, TakesTheMethodAndChunkAskedFor) {
  for (const Method method : {Method::kNaive, Method::kChunked, Method::kFused, Method::kRecompute,
                              Method::kNaiveEager, Method::kChunkedEager}) {
    const Plan p = plan(problem_by(kProblem), fixed_cpu(), {.method = method, .chunk = 100});
    EXPECT_EQ(p.method, method);
    const bool whole = method == Method::kNaive || method == Method::kNaiveEager;
    EXPECT_EQ(p.chunk, whole ? 2000 : 100) << name_of(method);
    EXPECT_EQ(p.num_chunks, whole ? 1 : 20);
  }
  EXPECT_EQ(plan(problem_by(kProblem), fixed_cpu(), {.chunk = 1'000'000}).chunk, 2000);
  EXPECT_EQ(
      plan(problem_by("n2000_h64_v5000 bf16 mean"), fixed_cpu(), {.policy = ChunkPolicy::kLiger})
          .chunk,
      liger_rule(2000, 64, 5000).chunk);
}

// Equal chunks of about 512 tokens in whole panels: a ragged last one would cost like any other.
TEST(Planner, CutsTokensIntoEqualChunksOnTheCpu) {
  for (const auto& [tokens, chunk, count] : {std::array<std::int64_t, 3>{1, 1, 1},
                                             {500, 500, 1},
                                             {512, 512, 1},
                                             {767, 767, 1},
                                             {768, 384, 2},
                                             {1024, 512, 2},
                                             {2000, 504, 4},
                                             {2048, 512, 4},
                                             {16384, 512, 32}}) {
    const Plan p = plan(problem_by(fmt::format("n{}_h64_v5000 f32 mean", tokens)), fixed_cpu(),
                        {.method = Method::kFused});
    EXPECT_EQ(p.chunk, chunk) << tokens;
    EXPECT_EQ(p.num_chunks, count) << tokens;
  }
}

TEST(Planner, NeverChoosesAnEagerMethodByItself) {
  const Plan all = plan_report(problem_by(kProblem), fixed_cpu());
  const std::uint64_t eager = report_of(all, Method::kNaiveEager).extra_bytes;
  EXPECT_GT(eager, report_of(all, Method::kNaive).extra_bytes);
  EXPECT_NE(all.method, Method::kNaiveEager);
}

TEST(Planner, ServesNoTokens) {
  for (const DeviceCaps& caps : {fixed_cpu(), caps_of("h200")}) {
    for (const Method method : {Method::kAuto, Method::kNaive, Method::kChunked, Method::kFused,
                                Method::kRecompute, Method::kNaiveEager}) {
      const Plan p = plan(problem_by("n0_h64_v5000 bf16 mean"), caps, {.method = method});
      EXPECT_EQ(p.chunk, 1);
      EXPECT_EQ(p.num_chunks, 1);
    }
  }
}

TEST(Planner, IsPure) {
  const Plan a = plan(problem_by(kProblem), fixed_cpu());
  setenv("FLCE_NUM_THREADS", "7", 1);
  const Plan b = plan(problem_by(kProblem), fixed_cpu());
  unsetenv("FLCE_NUM_THREADS");
  EXPECT_TRUE(a == b);
}

TEST(Planner, AllocatesNothing) {
  if (!FLCE_COUNTS_ALLOCATIONS) GTEST_SKIP() << "the sanitizer has its own allocator";
  const Problem problem = problem_by(kProblem);
  const Problem later = problem_by("n2000_h64_v5000 bf16 none upstream=per_token split");
  const DeviceCaps cpu = fixed_cpu();
  const DeviceCaps card = caps_of("h200");
  const std::uint64_t needed = plan(problem, cpu).extra_bytes;
  const std::int64_t before = allocations;
  const Plan a = plan(problem, cpu);
  const Plan b = plan(problem, cpu, {.budget_bytes = needed - 1});
  const Plan c = plan(later, card, {.policy = ChunkPolicy::kLiger});
  const Plan d = plan_report(problem, cpu, {.budget_bytes = 1});
  EXPECT_EQ(allocations - before, 0);
  EXPECT_NE(a.method, Method::kAuto);
  EXPECT_NE(b.method, Method::kAuto);
  EXPECT_NE(c.method, Method::kAuto);
  EXPECT_EQ(d.method, Method::kAuto);
}

TEST(Planner, TheDevicesMemoryBoundsThePeak) {
  const Problem problem = problem_by("n16384_h4096_v128256 bf16 mean");
  DeviceCaps card = caps_of("h200");
  const Plan free_plan = plan(problem, card);
  card.memory_bytes = free_plan.peak_bytes - 1;
  const Plan tight = plan(problem, card);
  EXPECT_LE(tight.peak_bytes, card.memory_bytes);
  EXPECT_TRUE(report_of(tight, Method::kNaive).refused());
  EXPECT_GT(report_of(tight, Method::kNaive).extra_bytes, 0u);  // what it would need still stands
  card.memory_bytes = free_plan.input_bytes;
  const std::string text = error_of(ErrorCode::kOutOfBudget, [&] { return plan(problem, card); });
  EXPECT_TRUE(contains(text, "h200")) << text;
  EXPECT_TRUE(contains(text, "inputs and outputs")) << text;
}

// Issue 3: N = 10^9, V = 10^7. Validation admits 2^40; nothing may wrap into a small number.
TEST(Planner, SizesDoNotOverflow) {
  Problem p = problem_by("n1000000000_h8192_v10000000 bf16 mean");
  for (const DeviceCaps& device : {fixed_cpu(), caps_of("b200")}) {
    DeviceCaps caps = device;
    caps.memory_bytes = 0;
    const Plan all = plan_report(p, caps);
    EXPECT_EQ(all.method, Method::kFused);
    const std::uint64_t eager = report_of(all, Method::kNaiveEager).extra_bytes;
    EXPECT_GE(eager, 160'000'000'000'000'000u);
    EXPECT_LE(eager, 160'000'128'000'100'000u);  // a card: up to 128 bytes for each token
    EXPECT_GE(report_of(all, Method::kNaive).extra_bytes, 40'000'000'000'000'000u);
    EXPECT_GE(report_of(all, Method::kChunked).extra_bytes, 40'000'000'000'000'000u);
    EXPECT_EQ(all.input_bytes,
              1'000'000'000ull * 8192 * 2 + 10'000'000ull * 8192 * 2 + 1'000'000'000ull * 8);
    EXPECT_GT(all.extra_bytes, static_cast<std::uint64_t>(all.chunk) * 10'000'000 * 2);
    if (device.memory_bytes > 0) {
      error_of(ErrorCode::kOutOfBudget, [&] { return plan(p, device); });
    }
  }
}

TEST(Planner, SizesBeyond64BitsAreRefused) {
  Problem p = problem_by("n1_h1_v1 bf16 mean");
  p.tokens = p.vocab = p.hidden = std::int64_t{1} << 40;
  const Plan all = plan_report(p, fixed_cpu());
  EXPECT_EQ(all.method, Method::kAuto);
  const std::string text = error_of(ErrorCode::kOutOfBudget, [&] { return plan(p, fixed_cpu()); });
  EXPECT_TRUE(contains(text, "64 bits")) << text;
  // Everything that asks the planner must survive it as well.
  judge(all);
  EXPECT_EQ(oom_checklist(all).size(), 6u);
  EXPECT_TRUE(chunk_costs(all).empty());
}

TEST(Planner, KnowsNoTimeWithoutTheDevicesFigures) {
  EXPECT_EQ(plan(problem_by(kProblem), fixed_cpu()).seconds, 0.0);
  DeviceCaps cpu = fixed_cpu();
  cpu.matmul_flops = 1e12;
  const double flops = 3 * 2.0 * 2000 * 64 * 5000;
  EXPECT_GT(plan(problem_by(kProblem), cpu).seconds, flops / 1e12);
}

}  // namespace
}  // namespace flce::test
