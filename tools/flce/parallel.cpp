// SPDX-License-Identifier: Apache-2.0
#include "parallel.hpp"

#include <algorithm>
#include <atomic>
#include <exception>
#include <mutex>
#include <new>
#include <system_error>
#include <thread>
#include <vector>

namespace flce::cli {

void in_parallel(std::int64_t count, std::int64_t piece,
                 const std::function<void(std::int64_t, std::int64_t)>& work, int num_threads) {
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
  const std::int64_t most = num_threads > 0 ? num_threads : std::thread::hardware_concurrency();
  {
    std::vector<std::jthread> others;
    try {
      for (std::int64_t i = 1; i < std::min(pieces, most); ++i) others.emplace_back(work_off);
    } catch (const std::system_error&) {  // no more threads
    } catch (const std::bad_alloc&) {     // nor memory for one
    }
    work_off();
  }
  if (failure) std::rethrow_exception(failure);
}

}  // namespace flce::cli
