// SPDX-License-Identifier: Apache-2.0
// Loops over large data on all processors, for making and converting tensors of gigabytes. Threads
// live for one loop only: none is left when a process forks or a clock runs.
#pragma once

#include <cstdint>
#include <functional>

namespace flce::cli {

// Calls work(begin, end) for pieces of at most `piece` of [0, count), on `num_threads` threads, 0:
// as many as the machine has processors; on fewer where the system gives no more. The pieces are
// the same for any number of threads. An exception of `work` ends the loop and is thrown here.
void in_parallel(std::int64_t count, std::int64_t piece,
                 const std::function<void(std::int64_t, std::int64_t)>& work, int num_threads = 0);

}  // namespace flce::cli
