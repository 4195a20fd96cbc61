// SPDX-License-Identifier: Apache-2.0
// What a step really takes of its device's memory, by the device's own books: on the CPU growth of
// the resident set, in a process of its own so that no method's pages hide another's; on a card the
// bytes that were allocated there, in this process, because a card's state does not survive a fork.
#pragma once

#include <cstdint>
#include <functional>
#include <nlohmann/json.hpp>

#include "bench_memory.hpp"
#include "flce/flce.hpp"

namespace flce::cli {

// From its construction on.
class MemoryGrowth {
 public:
  explicit MemoryGrowth(DeviceKind device);
  // At most so far.
  std::uint64_t bytes() const;

 private:
  DeviceKind device_;
  ResidentGrowth resident_;
  std::uint64_t start_bytes_ = 0;  // on a card
};

// The head of a column with such numbers, and a sentence about them.
const char* growth_name(DeviceKind device);
const char* growth_meaning(DeviceKind device);

// Runs `work` where its memory can be told from that of other methods, and returns its answer. On
// the CPU the calling process must not have run the library yet.
nlohmann::json run_measured(DeviceKind device, const std::function<nlohmann::json()>& work);

}  // namespace flce::cli
