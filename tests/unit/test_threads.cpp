// SPDX-License-Identifier: Apache-2.0
// The worker pool: every task once, several callers at once, after fork.
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <thread>
#include <vector>

#include "cpu/threads.hpp"

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

TEST(Threads, AForkedChildHasWorkersOfItsOwn) {
#if defined(__SANITIZE_THREAD__)
  GTEST_SKIP() << "ThreadSanitizer does not follow a fork of a process with threads";
#endif
  ASSERT_TRUE(runs_every_task(100, 2));
  const pid_t child = ::fork();
  ASSERT_GE(child, 0);
  if (child == 0) ::_exit(runs_every_task(100, 2) && runs_every_task(100, 3) ? 0 : 1);
  int status = -1;
  ASSERT_EQ(::waitpid(child, &status, 0), child);
  EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 0);
  EXPECT_TRUE(runs_every_task(100, 2)) << "the parent's pool goes on";
}

TEST(Threads, AtLeastOneIsAvailable) { EXPECT_GE(available_threads(), 1); }

}  // namespace
}  // namespace flce::cpu
