// SPDX-License-Identifier: Apache-2.0
// The results of `flce bench` on the CPU as a table and as rows for CSV and JSON. Columns are named
// as the library names things, and mean the same in all three. A card's: bench_cuda_report.hpp.
#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "bench_measure.hpp"

namespace flce::cli {

// What the numbers were measured on.
struct Machine {
  std::string cpu_model;  // of /proc/cpuinfo
  std::string isa;        // that the library chose
  int threads = 1;
  std::string version;
  std::string card;  // "NVIDIA H200"; empty: the CPU did it
  std::string date;  // UTC, "2026-01-31T12:00:00Z"
};
Machine machine_facts(const DeviceCaps& caps);

std::string bench_table(const BenchResult& result, const Machine& machine);
// One for each line of the table: what CSV and JSON files hold.
std::vector<nlohmann::ordered_json> bench_rows(const BenchResult& result, const Machine& machine);

}  // namespace flce::cli
