// SPDX-License-Identifier: Apache-2.0
// What the cost estimate asks of a device beyond its DeviceCaps.
#pragma once

#include <cstdint>
#include <string_view>

#include "flce/plan.hpp"

namespace flce {

// Sustained products per second for this element type; 0: unknown. DeviceCaps::matmul_flops of a
// card is for 16-bit inputs; f32 products run without tensor cores (no TF32 rounding), at the
// share that the card's data sheet gives.
double matmul_flops_of(const DeviceCaps& caps, Dtype dtype);

// The card's compute capability, 90 for 9.0; 0 for a card that is not in the table.
int capability_of(const DeviceCaps& caps);

// A card at hand, by the driver's name for it ("NVIDIA H200"): the entry of caps_of with this
// memory, or a card without figures.
DeviceCaps caps_of_product(std::string_view product, std::uint64_t memory_bytes);

}  // namespace flce
