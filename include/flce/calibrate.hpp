// SPDX-License-Identifier: Apache-2.0
// What the processor does at best, measured now. Planning never needs it: with these figures in its
// DeviceCaps a plan also says how long each method takes.
#pragma once

#include <cstdint>

#include "flce/plan.hpp"
#include "flce/types.hpp"

namespace flce {

struct CpuFigures {
  double matmul_flops = 0.0;     // per second: multiply-adds (two each) of the kernels in use
  double bandwidth_bytes = 0.0;  // per second, read from memory

  bool operator==(const CpuFigures&) const = default;
};

// Both figures are the best of several bursts on `num_threads` threads at once (0: as many as run
// will use), so that a disturbance lowers neither. The multiply-adds are those of the kernels that
// `dtype` is computed with. Takes about half a second; meant for an otherwise idle machine.
FLCE_API CpuFigures measure_cpu(Dtype dtype, int num_threads = 0);

// The multiply-adds alone, one burst of about 20 ms: for a yardstick beside other measurements.
FLCE_API double measure_matmul_flops(Dtype dtype, int num_threads = 0);

}  // namespace flce
