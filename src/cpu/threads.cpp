// SPDX-License-Identifier: Apache-2.0
#include "cpu/threads.hpp"

#include <pthread.h>
#include <sched.h>

#include <algorithm>
#include <atomic>
#include <condition_variable>
#include <mutex>
#include <new>
#include <system_error>
#include <thread>
#include <vector>

#include "core/env.hpp"
#include "cpu/quota.hpp"

namespace flce::cpu {
namespace {

// Turns of a waiting loop before the thread gives way: some ten microseconds.
constexpr int kSpins = 300;

void pause_cpu() {
#if defined(__x86_64__)
  __builtin_ia32_pause();
#elif defined(__aarch64__)
  asm volatile("yield");
#endif
}

// CPUs that the scheduler lets this process use.
int affinity_threads() {
  cpu_set_t set;
  CPU_ZERO(&set);
  if (::sched_getaffinity(0, sizeof set, &set) == 0) return std::max(1, CPU_COUNT(&set));
  return std::max(1, static_cast<int>(std::thread::hardware_concurrency()));
}

struct Job {
  Task task = nullptr;
  void* context = nullptr;
  std::int64_t count = 0;
  std::atomic<std::int64_t> next{0};

  void work(int lane) {
    for (std::int64_t i; (i = next.fetch_add(1, std::memory_order_relaxed)) < count;) {
      task(context, i, lane);
    }
  }
};

class Pool {
 public:
  // Runs the job if the pool is free; false if another caller holds it.
  bool try_run(std::int64_t count, int num_lanes, Task task, void* context) {
    // Also a task of the running job may ask: it must not wait for itself.
    if (is_taken_.exchange(true, std::memory_order_acquire)) return false;
    const int helpers = grow(num_lanes - 1);
    {
      const std::lock_guard<std::mutex> lock(mutex_);
      job_.task = task;
      job_.context = context;
      job_.count = count;
      job_.next.store(0, std::memory_order_relaxed);
      wanted_ = running_ = helpers;
      ++generation_;
    }
    wake_.notify_all();
    job_.work(0);
    {
      std::unique_lock<std::mutex> lock(mutex_);
      done_.wait(lock, [&] { return running_ == 0; });
    }
    is_taken_.store(false, std::memory_order_release);
    return true;
  }

 private:
  // Starts threads up to `count`; fewer where the system refuses more or has no memory for them:
  // the pool is taken here, and an exception would leave it so for ever. The threads live as long
  // as the process: they hold nothing that an exit would lose.
  int grow(int count) {
    while (num_threads_ < count) {
      const int lane = num_threads_ + 1;
      try {
        std::thread([this, lane, seen = generation_] { serve(lane, seen); }).detach();
      } catch (const std::system_error&) {
        break;
      } catch (const std::bad_alloc&) {
        break;
      }
      ++num_threads_;
    }
    return std::min(count, num_threads_);
  }

  void serve(int lane, std::uint64_t seen) {
    std::unique_lock<std::mutex> lock(mutex_);
    for (;;) {
      wake_.wait(lock, [&] { return generation_ != seen; });
      seen = generation_;
      if (lane > wanted_) continue;
      lock.unlock();
      job_.work(lane);
      lock.lock();
      if (--running_ == 0) done_.notify_one();
    }
  }

  std::atomic<bool> is_taken_{false};  // by the caller whose job runs
  std::mutex mutex_;                   // guards what follows
  std::condition_variable wake_;
  std::condition_variable done_;
  Job job_;
  std::uint64_t generation_ = 0;
  int wanted_ = 0;
  int running_ = 0;
  int num_threads_ = 0;
};

// The pool is never destroyed: its threads may outlive static destructors. A forked child has none
// of the parent's threads and makes a new pool in the same place.
alignas(Pool) unsigned char pool_memory[sizeof(Pool)];

// Null where the system has no memory to note the child's part; the next call asks again.
Pool* pool() try {
  static Pool* const instance = [] {
    if (::pthread_atfork(nullptr, nullptr, [] { new (pool_memory) Pool; }) != 0) {
      throw std::bad_alloc();
    }
    return new (pool_memory) Pool;
  }();
  return instance;
} catch (const std::bad_alloc&) {
  return nullptr;
}

}  // namespace

int available_threads() {
  static const int threads = [] {
    if (environment().num_threads > 0) return environment().num_threads;
    const int quota = quota_threads("");
    const int affinity = affinity_threads();
    return quota > 0 ? std::min(affinity, quota) : affinity;
  }();
  return threads;
}

void relax(int spins) {
  if (spins > kSpins) {
    ::sched_yield();
  } else {
    pause_cpu();
  }
}

void run_tasks(std::int64_t count, int num_lanes, Task task, void* context) {
  const auto lanes = static_cast<int>(std::min<std::int64_t>(num_lanes, count));
  Pool* const helpers = lanes > 1 ? pool() : nullptr;
  if (helpers != nullptr && helpers->try_run(count, lanes, task, context)) return;
  for (std::int64_t i = 0; i < count; ++i) task(context, i, 0);
}

}  // namespace flce::cpu
