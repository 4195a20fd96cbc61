// SPDX-License-Identifier: Apache-2.0
// What the system says about memory: growth of the resident set, measured in a process of its own
// so that one method's pages do not hide another's. Used by bench and train.
#pragma once

#include <cstdint>
#include <functional>
#include <nlohmann/json.hpp>

namespace flce::cli {

// Growth of this process's resident set: peak since `start()` minus what was resident then.
class ResidentGrowth {
 public:
  void start();
  // 0 where the system does not tell.
  std::uint64_t bytes() const;

 private:
  std::uint64_t start_bytes_ = 0;
};

// Runs `work` in a forked child and returns its answer. An Error thrown by `work` is thrown here;
// a child that the system ended (out of memory) becomes an Error that says so. The calling process
// must not have run the library yet: worker threads do not survive a fork.
nlohmann::json run_in_child(const std::function<nlohmann::json()>& work);

}  // namespace flce::cli
