// SPDX-License-Identifier: Apache-2.0
// Extra memory against the number of chunks as an SVG file: the plateau of `chunked`, the fall of
// `fused` and `recompute`, and `naive` as a level line. Lines are predicted, dots are measured.
#pragma once

#include <string>

#include "bench_measure.hpp"
#include "bench_report.hpp"

namespace flce::cli {

std::string bench_svg(const BenchResult& result, const Machine& machine);

}  // namespace flce::cli
