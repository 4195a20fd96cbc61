// SPDX-License-Identifier: Apache-2.0
// The same bits every time: from run to run, for any number of threads, whatever the workspace
// held; and exactly the bytes that were planned.
#include <gtest/gtest.h>

#include <algorithm>
#include <thread>

#include "support/compare.hpp"
#include "support/device.hpp"
#include "support/params.hpp"
#include "support/storage.hpp"
#include "support/wants.hpp"

namespace flce_test {
namespace {

using flce::Dtype;

class Determinism : public testing::TestWithParam<MethodAndDtype> {};

// Several chunks, vocabulary tiles and row tiles, many equal targets, everything asked for.
Case busy_case(Dtype dtype) {
  Case c = basic_case({250, 40, 900}, dtype, 103);
  Rng rng(107);
  for (std::int64_t& target : c.in.target) target = rng.index(12);
  c.in.bias = random_normals(dtype, 900, 1.0, rng);
  c.in.smoothing = 0.1;
  c.in.z_loss = 1e-3;
  c.wants = every_output(5);
  c.in.topk = 5;
  ignore_some(c, 0.2, rng);
  return c;
}

TEST_P(Determinism, RunsAndThreadCountsGiveTheSameBits) {
  if (on_cuda()) GTEST_SKIP() << kCpuAlone;
  const Case c = busy_case(GetParam().dtype);
  for (const std::int64_t chunk : {0, 64}) {
    RunConfig config{GetParam().method, chunk, 1};
    const Outcome first = run_case(c, config);
    for (const std::int32_t threads : {1, 2, 3, 7}) {
      config.threads = threads;
      const Outcome again = run_case(c, config);
      EXPECT_EQ(first_difference(first.results, again.results), "") << describe(c, config);
    }
  }
}

TEST_P(Determinism, WhateverTheWorkspaceHolds) {
  const Case c = busy_case(GetParam().dtype);
  const Memory reference(c);
  flce::PlanRequest request;
  request.method = GetParam().method;
  request.chunk = 100;
  const flce::Plan plan = flce::plan(reference.problem(c), caps_with(2), request);
  std::vector<Results> calls;
  Block workspace(plan.workspace_bytes);
  for (const std::byte fill : {std::byte{0}, std::byte{0xFF}, std::byte{0x7F}}) {
    const Memory memory(c);
    std::fill(workspace.span().begin(), workspace.span().end(), fill);
    flce_test::run(plan, memory.inputs(), memory.outputs(), workspace.span());
    calls.push_back(memory.results());
    EXPECT_EQ(first_difference(calls.front(), calls.back()), "") << static_cast<int>(fill);
  }
  const Memory memory(c);  // and as the last call left it
  flce_test::run(plan, memory.inputs(), memory.outputs(), workspace.span());
  EXPECT_EQ(first_difference(calls.front(), memory.results()), "");
  EXPECT_TRUE(workspace.canaries_intact());
}

TEST_P(Determinism, CallsFromSeveralThreadsAtOnce) {
  const Case c = busy_case(GetParam().dtype);
  const RunConfig config{GetParam().method, 100, 2};
  const Results want = run_case(c, config).results;
  std::vector<Results> got(3);
  std::vector<std::thread> callers;
  for (Results& results : got) {
    callers.emplace_back([&] { results = run_case(c, config).results; });
  }
  for (std::thread& caller : callers) caller.join();
  for (const Results& results : got) EXPECT_EQ(first_difference(results, want), "");
}

TEST_P(Determinism, UsesExactlyTheBytesThatWerePlanned) {
  // run_case compares the high-water marks with the plan and looks at the canaries.
  const Case c = busy_case(GetParam().dtype);
  for (const std::int64_t chunk : {1, 33, 250}) {
    for (const flce::Pass pass : {flce::Pass::kRun, flce::Pass::kForwardBackward}) {
      const Outcome outcome = run_case(c, {GetParam().method, chunk, 2, pass});
      const flce::Plan& plan = outcome.plan;
      EXPECT_EQ(plan.extra_bytes, plan.workspace_bytes + plan.saved_bytes);
      EXPECT_EQ(plan.peak_bytes, plan.input_bytes + plan.output_bytes + plan.extra_bytes);
      // fused has made its gradients when forward returns; a card keeps the sums of the loss.
      const bool saves =
          pass == flce::Pass::kForwardBackward && plan.method != flce::Method::kFused;
      EXPECT_EQ(plan.saved_bytes > (on_cuda() ? 256 : 0), saves);
      for (const flce::SlotPlace& slot : plan.slots) {
        const std::uint64_t room = slot.saved ? plan.saved_bytes : plan.workspace_bytes;
        EXPECT_LE(slot.offset + slot.bytes, room);
      }
    }
  }
}

TEST_P(Determinism, TheBudgetIsKept) {
  const Case c = busy_case(GetParam().dtype);
  const RunConfig free_config{GetParam().method, 0, 2};
  const Outcome free = run_case(c, free_config);
  for (std::uint64_t budget = free.plan.extra_bytes; budget > 1024; budget = budget * 3 / 4) {
    RunConfig config = free_config;
    config.budget_bytes = budget;
    if (refusal(c, config).has_value()) return;
    const Outcome outcome = run_case(c, config);
    EXPECT_LE(outcome.plan.extra_bytes, budget);
    expect_matches(c, oracle::evaluate(c.in), outcome.results, describe(c, config));
  }
}

INSTANTIATE_TEST_SUITE_P(Op, Determinism, testing::ValuesIn(methods_and_dtypes()), param_name);

}  // namespace
}  // namespace flce_test
