// SPDX-License-Identifier: Apache-2.0
#include "workers.hpp"

namespace flce::bench {

Workers::Workers(int threads) {
  for (int i = 1; i < threads; ++i) helpers_.emplace_back([this] { serve(); });
}

Workers::~Workers() {
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    stop_ = true;
  }
  wake_.notify_all();
  for (std::thread& helper : helpers_) helper.join();
}

void Workers::run(std::int64_t count, const std::function<void(std::int64_t)>& body) {
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    body_ = &body;
    next_ = 0;
    count_ = count;
  }
  wake_.notify_all();
  work();
  std::unique_lock<std::mutex> lock(mutex_);
  done_.wait(lock, [this] { return running_ == 0; });
  body_ = nullptr;
}

// A task is long against the lock: callers hand out blocks, not elements.
void Workers::work() {
  std::unique_lock<std::mutex> lock(mutex_);
  while (body_ != nullptr && next_ < count_) {
    const std::int64_t i = next_++;
    const auto* body = body_;
    ++running_;
    lock.unlock();
    (*body)(i);
    lock.lock();
    if (--running_ == 0 && next_ == count_) done_.notify_all();
  }
}

void Workers::serve() {
  for (;;) {
    {
      std::unique_lock<std::mutex> lock(mutex_);
      wake_.wait(lock, [this] { return stop_ || (body_ != nullptr && next_ < count_); });
      if (stop_) return;
    }
    work();
  }
}

}  // namespace flce::bench
