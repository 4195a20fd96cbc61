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

// Methods of ours are booked by the backend. The eager variants keep what the PyTorch code that
// people run keeps, on any device: see backend/eager.hpp.
Booking book_method(const Backend& backend, const MethodInfo& method, const Problem& problem,
                    const DeviceCaps& caps, const Tiling& tiling);

}  // namespace flce
