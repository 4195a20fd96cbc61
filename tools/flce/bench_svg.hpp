// SPDX-License-Identifier: Apache-2.0
// The two plots of `flce bench`. Memory against the number of chunks: the plateau of `chunked`, the
// fall of `fused` and `recompute`, `naive` as a level line. Time against the chunk's size: what a
// small chunk costs.
#pragma once

#include <string>

#include "bench_measure.hpp"
#include "bench_report.hpp"

namespace flce::cli {

std::string memory_svg(const BenchResult& result, const Machine& machine);
std::string time_svg(const BenchResult& result, const Machine& machine);

}  // namespace flce::cli
