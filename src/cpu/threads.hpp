// SPDX-License-Identifier: Apache-2.0
// The worker threads of the CPU backend: one persistent pool per process, no OpenMP runtime.
//
// Several application threads may call at once: one of them gets the pool, the others do their work
// on their own thread meanwhile (the results are the same bits); so does a task that calls in turn.
// After fork() the child starts a pool of its own.
#pragma once

#include <cstdint>
#include <type_traits>

namespace flce::cpu {

// Threads that the process may use: FLCE_NUM_THREADS, else the smaller of its CPU affinity and its
// cgroup quota (rounded up).
int available_threads();

// A task is called with its index and with the lane it runs on, 0 <= lane < num_lanes. Two tasks on
// one lane never run at the same time, so a lane may own scratch memory.
using Task = void (*)(void* context, std::int64_t index, int lane);

// Runs tasks 0..count-1 on at most `num_lanes` threads, the caller's among them, and returns when
// all are done. Tasks start in the order of their index, so that one may wait for those before it.
// Allocates nothing once the pool has that many threads. Tasks must not throw.
void run_tasks(std::int64_t count, int num_lanes, Task task, void* context);

// The `spins`-th turn of a loop in which a task waits: a pause, later a turn for other threads.
void relax(int spins);

template <typename Body>
void parallel_for(std::int64_t count, int num_lanes, Body&& body) {
  using Callable = std::remove_reference_t<Body>;
  run_tasks(
      count, num_lanes,
      [](void* context, std::int64_t index, int lane) {
        (*static_cast<Callable*>(context))(index, lane);
      },
      const_cast<void*>(static_cast<const void*>(&body)));
}

}  // namespace flce::cpu
