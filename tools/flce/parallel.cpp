// SPDX-License-Identifier: Apache-2.0
#include "parallel.hpp"

#include <algorithm>
#include <atomic>
#include <exception>
#include <mutex>
#include <thread>
#include <vector>

namespace flce::cli {

void in_parallel(std::int64_t count, std::int64_t piece,
                 const std::function<void(std::int64_t, std::int64_t)>& work) {
  std::atomic<std::int64_t> next{0};
  std::exception_ptr failure;
  std::mutex failure_mutex;
  const auto work_off = [&] {
    try {
      for (std::int64_t begin = next.fetch_add(piece); begin < count;
           begin = next.fetch_add(piece)) {
        work(begin, std::min(begin + piece, count));
      }
    } catch (...) {
      const std::lock_guard lock(failure_mutex);
      failure = std::current_exception();
      next.store(count);
    }
  };
  const std::int64_t pieces = (count + piece - 1) / piece;
  const auto processors = std::max<std::int64_t>(std::thread::hardware_concurrency(), 1);
  {
    std::vector<std::jthread> others;
    for (std::int64_t i = 1; i < std::min(pieces, processors); ++i) others.emplace_back(work_off);
    work_off();
  }
  if (failure) std::rethrow_exception(failure);
}

}  // namespace flce::cli
