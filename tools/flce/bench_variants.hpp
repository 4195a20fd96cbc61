// SPDX-License-Identifier: Apache-2.0
// The lines of `flce bench`: which methods with which chunks, and what the plan says of each.
#pragma once

#include <vector>

#include "bench_measure.hpp"

namespace flce::cli {

struct Variant {
  BenchRow row;
  Plan plan;  // if row.runnable
};

// Whether the size of a chunk can be said of it.
bool has_chunks(const BenchMethod& method);

// One for each method and chunk of the settings, each once.
std::vector<Variant> plan_variants(const BenchSettings& settings);

// The planner's line for a row, on a device with these figures.
MethodReport variant_report(const BenchSettings& settings, const DeviceCaps& caps,
                            const BenchRow& row);

}  // namespace flce::cli
