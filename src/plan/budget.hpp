// SPDX-License-Identifier: Apache-2.0
// Turns a limit in bytes into a chunk. Every chunk rule is in budget.cpp: the chunk that measured
// best, the published one, the caller's own, and what a budget makes of them.
#pragma once

#include <cstdint>

#include "plan/book.hpp"

namespace flce {

struct Limits {
  bool inputs_fit = true;          // false: inputs and outputs alone exceed the device's memory
  std::uint64_t memory_extra = 0;  // what the device's memory leaves for extra_bytes
  std::uint64_t budget_extra = 0;  // what the budget allows
  std::uint64_t extra() const { return memory_extra < budget_extra ? memory_extra : budget_extra; }
};
Limits limits_of(std::uint64_t io_bytes, const DeviceCaps& caps, const PlanRequest& request);

// What the chunk search may look at.
struct Scope {
  const Backend& backend;
  const Problem& problem;
  const DeviceCaps& caps;
  const PlanRequest& request;
  Limits limits;
  std::int64_t slab = 0;  // of `recompute`, as an earlier plan found it; 0: chosen
};

struct Choice {
  bool fits = false;
  Booking booking;  // the chosen one; if nothing fits, the one that needs least
};
Choice choose_tiling(const Scope& scope, const MethodInfo& method, Route route);

}  // namespace flce
