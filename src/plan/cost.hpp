// SPDX-License-Identifier: Apache-2.0
// An estimate of the time, to compare methods and chunks. Not a promise.
#pragma once

#include "backend/backend.hpp"

namespace flce {

// Seconds of forward and backward; 0 where the device's figures are unknown.
double estimate_seconds(const Problem& problem, const DeviceCaps& caps, const Tiling& tiling,
                        int num_gemms, bool allow_tf32 = false);
// The same for a processor whose figures are known; called by estimate_seconds.
double estimate_cpu_seconds(const Problem& problem, const DeviceCaps& caps, const Tiling& tiling,
                            int num_gemms);

}  // namespace flce
