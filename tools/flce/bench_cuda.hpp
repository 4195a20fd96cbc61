// SPDX-License-Identifier: Apache-2.0
// `flce bench` on a CUDA card. Each variant's memory is measured while it is the only one there;
// times are of events on a stream of its own, all variants and the three bare products interleaved;
// errors are against the same problem computed once in f64 on the card.
#pragma once

#include "bench_measure.hpp"

namespace flce::cli {

// A variant that does not fit or is refused is a row with the reason. Throws Error where the card
// cannot be used at all.
BenchResult run_cuda_bench(const BenchSettings& settings, const BenchProgress& on_progress);

}  // namespace flce::cli
