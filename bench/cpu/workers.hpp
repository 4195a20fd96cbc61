// SPDX-License-Identifier: Apache-2.0
// A small pool of threads for what the benchmark itself does: random data, comparisons, the
// rivals' softmax pass and the peak probe. Idle threads sleep, so they take no time from others.
#pragma once

#include <condition_variable>
#include <cstdint>
#include <functional>
#include <mutex>
#include <thread>
#include <vector>

namespace flce::bench {

class Workers {
 public:
  explicit Workers(int threads);
  ~Workers();
  Workers(const Workers&) = delete;
  Workers& operator=(const Workers&) = delete;

  int threads() const { return static_cast<int>(helpers_.size()) + 1; }
  // body(i) for i in [0, count), each once, on all threads; returns when all are done.
  void run(std::int64_t count, const std::function<void(std::int64_t)>& body);

 private:
  void serve();
  void work();

  std::vector<std::thread> helpers_;
  std::mutex mutex_;
  std::condition_variable wake_;
  std::condition_variable done_;
  const std::function<void(std::int64_t)>* body_ = nullptr;
  std::int64_t next_ = 0;
  std::int64_t count_ = 0;
  std::int64_t running_ = 0;
  bool stop_ = false;
};

}  // namespace flce::bench
