// SPDX-License-Identifier: Apache-2.0
// Whole operations beside each other: from several application threads with problems of their own,
// in forked children, and in a task of the pool itself.
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <thread>
#include <vector>

#include "cpu/threads.hpp"
#include "support/child.hpp"
#include "support/compare.hpp"
#include "support/params.hpp"

namespace flce_test {
namespace {

struct Call {
  Case c;
  RunConfig config;
  Results want;
};

// Problem `i`: sizes, element type, method and number of threads of its own; right when alone.
Call call_of(int i) {
  const auto all = methods_and_dtypes();
  const MethodAndDtype& kind = all[static_cast<std::size_t>(i * 5) % all.size()];
  Call call{basic_case({50 + 11 * i, 12 + 5 * i, 230 + 60 * i}, kind.dtype, 500 + i),
            {kind.method, 48, 1 + i % 4},
            {}};
  call.c.wants.lse = call.c.wants.argmax = true;
  Rng rng(600 + i);
  ignore_some(call.c, 0.2, rng);
  call.want = run_case(call.c, call.config).results;
  expect_matches(call.c, oracle::evaluate(call.c.in), call.want, describe(call.c, call.config));
  return call;
}

bool is_right(const Call& call) {
  return first_difference(run_case(call.c, call.config).results, call.want).empty();
}

std::vector<Call> calls(int count) {
  std::vector<Call> all;
  for (int i = 0; i < count; ++i) all.push_back(call_of(i));
  return all;
}

TEST(ThreadsRun, EightCallersWithProblemsOfTheirOwn) {
  const std::vector<Call> all = calls(8);
  std::atomic<int> failures{0};
  std::vector<std::thread> callers;
  for (const Call& call : all) {
    callers.emplace_back([&] {
      for (int round = 0; round < 3; ++round) failures += !is_right(call);
    });
  }
  for (std::thread& caller : callers) caller.join();
  EXPECT_EQ(failures, 0);
}

// Random sizes, layouts and options, each with a method and a way of calling of its own; `want` is
// what one thread alone makes of it.
Call random_call(std::uint64_t seed) {
  Rng rng(seed);
  Call call{random_case(rng.pick({flce::Dtype::kF64, flce::Dtype::kF32, flce::Dtype::kBF16}), seed),
            {rng.pick({flce::Method::kNaive, flce::Method::kChunked, flce::Method::kFused}),
             rng.pick<std::int64_t>({1, 16, 48}), 1,
             rng.pick({flce::Pass::kRun, flce::Pass::kForwardBackward})},
            {}};
  if (refusal(call.c, call.config)) call.config.method = flce::Method::kRecompute;
  call.want = run_case(call.c, call.config).results;
  call.config.threads = static_cast<std::int32_t>(1 + seed % 4);
  return call;
}

TEST(ThreadsRun, EightCallersWithOptionsOfTheirOwn) {
  constexpr int kCallers = 8;
  constexpr int kCallsOfEach = 12;
  std::vector<Call> all;
  for (int i = 0; i < kCallers * kCallsOfEach; ++i) {
    all.push_back(random_call(7000U + static_cast<std::uint64_t>(i)));
  }
  std::atomic<int> failures{0};
  std::vector<std::thread> callers;
  for (int caller = 0; caller < kCallers; ++caller) {
    callers.emplace_back([&, caller] {
      for (int i = 0; i < kCallsOfEach; ++i) {
        failures += !is_right(all[static_cast<std::size_t>(i * kCallers + caller)]);
      }
    });
  }
  for (std::thread& caller : callers) caller.join();
  EXPECT_EQ(failures, 0);
}

TEST(ThreadsRun, WithinATaskOfThePool) {
  const std::vector<Call> all = calls(4);
  std::atomic<int> failures{0};
  flce::cpu::parallel_for(8, 3, [&](std::int64_t i, int) { failures += !is_right(all[i % 4]); });
  EXPECT_EQ(failures, 0);
}

TEST(ThreadsRun, InAChildAndInAChildOfAChild) {
#if defined(__SANITIZE_THREAD__)
  GTEST_SKIP() << "ThreadSanitizer does not follow a fork of a process with threads";
#endif
  const std::vector<Call> all = calls(4);  // the pool has threads now
  const auto works = [&] { return std::all_of(all.begin(), all.end(), is_right); };
  EXPECT_EQ(status_of_child([&] { return works() && status_of_child(works) == 0 && works(); }), 0);
  EXPECT_TRUE(works()) << "the parent goes on";
}

}  // namespace
}  // namespace flce_test
