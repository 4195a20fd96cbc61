// SPDX-License-Identifier: Apache-2.0
// Everything that can be wrong with what a caller gives, said once. Behind these functions no room
// checks the same fact again.
#pragma once

#include <cstddef>
#include <span>

#include "flce/flce.hpp"

namespace flce {

// Sizes, dtypes, options and their combinations.
void validate_problem(const Problem& problem);
void validate_request(const PlanRequest& request, const DeviceCaps& caps, Dtype dtype);

// The views against the problem that they pose: shapes, dtypes and strides, not the memory.
void validate_shapes(const Problem& problem, const Inputs& inputs, const Outputs& outputs);

// Which views a call looks at.
enum class Phase { kRun, kForward, kBackward };

// The views against the plan's problem: shapes, dtypes, strides, null data, overlaps with one
// another and with the workspace. `writes_grads`: the call writes the gradients.
void validate_views(const Plan& plan, const Inputs& inputs, const Outputs& outputs, Phase phase,
                    bool writes_grads, std::span<const std::byte> workspace,
                    std::span<const std::byte> saved);

// A buffer of the caller's against the bytes that the plan booked.
void validate_buffer(const char* name, std::span<const std::byte> buffer, std::uint64_t bytes);

}  // namespace flce
