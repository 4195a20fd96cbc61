// SPDX-License-Identifier: Apache-2.0
// The results of `flce bench` on a card as a table, and as rows whose columns are those of the
// files in bench/results: bench/cuda_rows.py reads them.
#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "bench_measure.hpp"
#include "bench_report.hpp"

namespace flce::cli {

// `set` is the file's word for what the rows belong to: "headline" or "sweep".
std::vector<nlohmann::ordered_json> cuda_rows(const BenchResult& result, const Machine& machine,
                                              const std::string& set);
std::string cuda_table(const BenchResult& result, const Machine& machine);

}  // namespace flce::cli
