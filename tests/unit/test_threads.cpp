// SPDX-License-Identifier: Apache-2.0
// The worker pool: every task once and in order, several callers at once, tasks that call in turn,
// after fork.
#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <thread>
#include <vector>

#include "cpu/threads.hpp"
#include "support/child.hpp"

namespace flce::cpu {
namespace {

// Each task adds its index to its own cell; lanes must be exclusive.
bool runs_every_task(std::int64_t count, int lanes) {
  std::vector<std::int64_t> cells(count, 0);
  std::vector<std::atomic<int>> in_use(lanes);
  std::atomic<bool> shared_lane{false};
  parallel_for(count, lanes, [&](std::int64_t i, int lane) {
    if (in_use[lane].fetch_add(1) != 0) shared_lane = true;
    cells[i] += i + 1;
    in_use[lane].fetch_sub(1);
  });
  for (std::int64_t i = 0; i < count; ++i) {
    if (cells[i] != i + 1) return false;
  }
  return !shared_lane;
}

TEST(Threads, EveryTaskRunsOnceOnALaneOfItsOwn) {
  for (const int lanes : {1, 2, 3, 7}) {
    for (const std::int64_t count : {0, 1, 2, 5, 1000}) {
      for (int round = 0; round < 20; ++round) ASSERT_TRUE(runs_every_task(count, lanes));
    }
  }
}

TEST(Threads, SeveralCallersAtOnce) {
  std::atomic<int> failures{0};
  std::vector<std::thread> callers;
  for (int c = 0; c < 4; ++c) {
    callers.emplace_back([&] {
      for (int round = 0; round < 100; ++round) failures += !runs_every_task(200, 3);
    });
  }
  for (std::thread& caller : callers) caller.join();
  EXPECT_EQ(failures, 0);
}

// Whether every task that waits until all tasks before it are done comes to its end.
bool runs_a_chain(std::int64_t count, int lanes) {
  const auto deadline = std::chrono::steady_clock::now() + std::chrono::seconds(60);
  std::atomic<std::int64_t> done{0};
  std::atomic<bool> late{false};
  parallel_for(count, lanes, [&](std::int64_t i, int) {
    for (int spins = 0; done.load() < i && !late; ++spins) {
      relax(spins);
      if (std::chrono::steady_clock::now() > deadline) late = true;
    }
    done.fetch_add(1);
  });
  return !late && done == count;
}

TEST(Threads, ATaskMayWaitForThoseBeforeIt) {
  for (const int lanes : {1, 2, 3, 7}) {
    for (int round = 0; round < 5; ++round) ASSERT_TRUE(runs_a_chain(300, lanes)) << lanes;
  }
}

TEST(Threads, TasksStartInTheOrderOfTheirIndex) {
  for (const int lanes : {1, 2, 3, 7}) {
    std::vector<std::int64_t> last(lanes, -1);  // of each lane
    std::atomic<bool> in_order{true};
    parallel_for(2000, lanes, [&](std::int64_t i, int lane) {
      if (i <= last[lane]) in_order = false;
      last[lane] = i;
    });
    EXPECT_TRUE(in_order) << lanes;
  }
}

TEST(Threads, AWaitingTaskIsServedWhileOthersCall) {
  std::atomic<int> failures{0};
  std::vector<std::thread> callers;
  for (int c = 0; c < 4; ++c) {
    callers.emplace_back([&] {
      for (int round = 0; round < 10; ++round) failures += !runs_a_chain(100, 3);
    });
  }
  for (std::thread& caller : callers) caller.join();
  EXPECT_EQ(failures, 0);
}

TEST(Threads, ATaskMayCallInTurn) {
  std::atomic<int> failures{0};
  std::atomic<int> calls{0};
  parallel_for(40, 3, [&](std::int64_t, int) {
    failures += !runs_every_task(50, 3);
    failures += !runs_a_chain(20, 2);
    calls += 1;
  });
  EXPECT_EQ(calls, 40);
  EXPECT_EQ(failures, 0);
  EXPECT_TRUE(runs_every_task(100, 3)) << "the pool is free again";
}

TEST(Threads, AForkedChildHasWorkersOfItsOwn) {
#if defined(__SANITIZE_THREAD__)
  GTEST_SKIP() << "ThreadSanitizer does not follow a fork of a process with threads";
#endif
  ASSERT_TRUE(runs_every_task(100, 2));
  const auto works = [] { return runs_every_task(100, 2) && runs_a_chain(50, 3); };
  EXPECT_EQ(flce_test::status_of_child(works), 0);
  EXPECT_EQ(flce_test::status_of_child(
                [&] { return works() && flce_test::status_of_child(works) == 0 && works(); }),
            0);
  EXPECT_TRUE(runs_every_task(100, 2)) << "the parent's pool goes on";
}

TEST(Threads, AChildForkedWhileThePoolIsBusy) {
#if defined(__SANITIZE_THREAD__)
  GTEST_SKIP() << "ThreadSanitizer does not follow a fork of a process with threads";
#endif
  std::atomic<bool> stop{false};
  std::atomic<bool> is_running{false};
  std::thread busy([&] {
    while (!stop) parallel_for(50, 2, [&](std::int64_t, int) { is_running = true; });
  });
  while (!is_running) std::this_thread::yield();
  for (int round = 0; round < 20; ++round) {
    ASSERT_EQ(flce_test::status_of_child([] { return runs_every_task(100, 3); }), 0) << round;
  }
  stop = true;
  busy.join();
}

TEST(Threads, AtLeastOneIsAvailable) { EXPECT_GE(available_threads(), 1); }

}  // namespace
}  // namespace flce::cpu
