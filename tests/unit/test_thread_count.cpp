// SPDX-License-Identifier: Apache-2.0
// How many threads a process takes itself to have: CPU affinity and FLCE_NUM_THREADS. Both are read
// once, so each case is a process of its own: this program, called with --print-threads.
#include <gtest/gtest.h>
#include <sched.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdio>
#include <cstring>
#include <string>

#include "cpu/threads.hpp"
#include "flce/flce.hpp"

namespace {

// What the child prints: the number, or the error. `cpus` > 0: it may use only so many CPUs.
std::string threads_of_child(const char* variable, int cpus = 0) {
  int ends[2];
  if (::pipe(ends) != 0) return "no pipe";
  const pid_t child = ::fork();
  if (child == 0) {
    ::dup2(ends[1], STDOUT_FILENO);
    if (variable == nullptr) ::unsetenv("FLCE_NUM_THREADS");
    if (variable != nullptr) ::setenv("FLCE_NUM_THREADS", variable, 1);
    cpu_set_t all, some;
    CPU_ZERO(&all);
    CPU_ZERO(&some);
    ::sched_getaffinity(0, sizeof all, &all);
    for (int cpu = 0; cpu < CPU_SETSIZE && CPU_COUNT(&some) < cpus; ++cpu) {
      if (CPU_ISSET(cpu, &all)) CPU_SET(cpu, &some);
    }
    if (cpus > 0 && ::sched_setaffinity(0, sizeof some, &some) != 0) ::_exit(1);
    ::execl("/proc/self/exe", "test_thread_count", "--print-threads", nullptr);
    ::_exit(1);
  }
  ::close(ends[1]);
  std::string text;
  char buffer[256];
  for (ssize_t got; (got = ::read(ends[0], buffer, sizeof buffer)) > 0;) text.append(buffer, got);
  ::close(ends[0]);
  int status = -1;
  ::waitpid(child, &status, 0);
  return WIFEXITED(status) && WEXITSTATUS(status) == 0 ? text : "failed: " + text;
}

TEST(ThreadCount, CpuAffinityIsRespected) {
  EXPECT_EQ(threads_of_child(nullptr, 1), "1");
  cpu_set_t all;
  CPU_ZERO(&all);
  ASSERT_EQ(::sched_getaffinity(0, sizeof all, &all), 0);
  const std::string threads = threads_of_child(nullptr);
  EXPECT_GE(std::atoi(threads.c_str()), 1) << threads;
  EXPECT_LE(std::atoi(threads.c_str()), CPU_COUNT(&all)) << "the quota may allow fewer";
  EXPECT_EQ(threads_of_child("", 1), "1") << "an empty variable is none";
}

TEST(ThreadCount, TheVariableCountsWhateverTheAffinity) {
  EXPECT_EQ(threads_of_child("1"), "1");
  EXPECT_EQ(threads_of_child("3", 1), "3");
  EXPECT_EQ(threads_of_child("1024"), "1024");
}

TEST(ThreadCount, WrongValuesAreErrorsThatSayWhatWouldWork) {
  for (const char* value :
       {"0", "-1", "1025", "99999999999999999999", "two", "2x", "1.5", " 2", "2 ", "+2", "0x2"}) {
    EXPECT_EQ(threads_of_child(value), "error: FLCE_NUM_THREADS is '" + std::string(value) +
                                           "'; it must be a whole number from 1 to 1024");
  }
}

int print_threads() {
  try {
    std::printf("%d", flce::cpu::available_threads());
  } catch (const flce::Error& error) {
    std::printf("error: %s", error.what());
  }
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  if (argc == 2 && std::strcmp(argv[1], "--print-threads") == 0) return print_threads();
  testing::InitGoogleTest(&argc, argv);
  return RUN_ALL_TESTS();
}
