// SPDX-License-Identifier: Apache-2.0
// The bytes of one method at one tiling, from the same booking function that running looks up.
#pragma once

#include <array>
#include <cstdint>

#include "backend/backend.hpp"
#include "methods/method.hpp"

namespace flce {

struct Booking {
  Tiling tiling;
  std::array<SlotPlace, kNumSlots> slots{};
  std::uint64_t workspace_bytes = 0;
  std::uint64_t saved_bytes = 0;
  std::uint64_t extra_bytes = 0;
};

// Methods that can run are booked by the backend. Those that are planned only keep what the PyTorch
// code that people run keeps, on any device: see book.cpp.
Booking book_method(const Backend& backend, const MethodInfo& method, const Problem& problem,
                    const DeviceCaps& caps, const Tiling& tiling);

// Bytes that the eager variant holds for each logit when its memory peaks, and the part of them
// that the autograd graph keeps for every chunk.
struct EagerLogit {
  std::int64_t all_bytes = 0;
  std::int64_t kept_bytes = 0;
};
EagerLogit eager_logit(const Problem& problem);

}  // namespace flce
