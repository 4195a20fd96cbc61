// SPDX-License-Identifier: Apache-2.0
// What `flce bench` measures: methods and chunk sizes of one problem side by side, each with what
// the plan predicts and what was seen.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "bench_error.hpp"
#include "flce/calibrate.hpp"
#include "flce/flce.hpp"
#include "verify_data.hpp"

namespace flce::cli {

struct BenchSettings {
  ProblemText text;
  std::vector<Method> methods;
  std::vector<std::int64_t> chunks;  // token rows; empty: the planner's choice
  std::int64_t rounds = 5;
  std::int64_t warmup = 1;
  DataSettings data;
  DeviceCaps caps;
  bool measure_rss = true;
  bool measure_error = true;
};

// One line of the table. Negative numbers mean "not measured".
struct BenchRow {
  Method method = Method::kAuto;
  std::int64_t chunk = 0;
  std::int64_t num_chunks = 0;
  std::int32_t gemms = 0;
  // What the plan says.
  std::uint64_t predicted_bytes = 0;  // of workspace and saved memory
  std::uint64_t predicted_peak_bytes = 0;
  double predicted_seconds = 0.0;  // with the figures measured in this run
  std::string refused;             // the reason; empty if it serves
  bool runnable = true;            // the eager variants plan more than they run
  // What was seen.
  std::int64_t extra_bytes = -1;  // high-water mark of workspace and saved memory
  std::int64_t peak_bytes = -1;   // inputs and outputs as allocated, and extra_bytes
  std::int64_t rss_bytes = -1;    // growth of the resident set in a process of its own
  std::vector<double> seconds;    // one for each round
  double loss = 0.0;              // the first element, or the reduced loss
  Errors errors;

  bool measured() const { return extra_bytes >= 0; }
  double seconds_median() const;
  double seconds_min() const;
  double seconds_max() const;
  double gflops(const Problem& problem) const;
};

struct BenchResult {
  Problem problem;
  CpuFigures figures;  // measured before and between the rounds, with as many threads
  std::vector<BenchRow> rows;
  std::int64_t rounds = 0;
  std::int64_t sampled_tokens = 0;  // of the error; 0: not measured
  // Median time over naive's; negative if naive was not measured.
  double ratio_to_naive(const BenchRow& row) const;
  double share_of_peak(const BenchRow& row) const;  // likewise
};

// `on_progress(done, all, what)` is called before each piece of work. The process must not have
// run the library before: memory is measured in forked children.
using BenchProgress = std::function<void(std::int64_t, std::int64_t, const std::string&)>;
BenchResult run_bench(const BenchSettings& settings, const BenchProgress& on_progress);

}  // namespace flce::cli
