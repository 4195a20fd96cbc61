// SPDX-License-Identifier: Apache-2.0
// The results of `flce bench` as a table, CSV and JSON. Columns are named as the library names
// things, and mean the same in all three.
#pragma once

#include <nlohmann/json.hpp>
#include <string>

#include "bench_measure.hpp"

namespace flce::cli {

// What the numbers were measured on.
struct Machine {
  std::string cpu_model;  // of /proc/cpuinfo
  std::string isa;        // that the library chose
  int threads = 1;
  std::string version;
  std::string date;  // UTC, "2026-01-31T12:00:00Z"
};
Machine machine_facts(const DeviceCaps& caps);

std::string bench_table(const BenchResult& result, const Machine& machine);
std::string bench_csv(const BenchResult& result, const Machine& machine);
// A list of rows with the columns of the CSV file.
nlohmann::ordered_json bench_json(const BenchResult& result, const Machine& machine);

}  // namespace flce::cli
