// SPDX-License-Identifier: Apache-2.0
// What `flce bench` measures: methods and chunk sizes of one problem side by side, each with what
// the plan predicts and what was seen.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "bench_error.hpp"
#include "flce/flce.hpp"
#include "verify_data.hpp"

namespace flce::cli {

struct BenchSettings {
  ProblemText text;
  std::vector<Method> methods;
  std::vector<std::int64_t> chunks;  // empty: the planner's choice
  std::int64_t rounds = 5;
  std::int64_t warmup = 1;
  DataSettings data;
  DeviceCaps caps;
  bool measure_rss = true;
  bool measure_error = true;
};

// One line of the table. Negative numbers and infinities mean "not measured".
struct BenchRow {
  Method method = Method::kAuto;
  std::int64_t chunk = 0;
  std::int64_t num_chunks = 0;
  std::int32_t gemms = 0;
  std::uint64_t workspace_bytes = 0;  // these four are predicted
  std::uint64_t saved_bytes = 0;
  std::uint64_t extra_bytes = 0;
  std::uint64_t peak_bytes = 0;
  std::string refused;           // the reason; empty if it serves
  bool runnable = true;          // the eager variants are planned only
  bool measured = false;         // by a run
  std::uint64_t used_bytes = 0;  // high-water mark of workspace and saved memory
  std::int64_t rss_bytes = -1;   // growth of the resident set in a process of its own
  std::vector<double> seconds;   // one for each round
  double loss = 0.0;             // the first element, or the reduced loss
  Errors errors;

  double seconds_median() const;
  double seconds_min() const;
  double seconds_max() const;
  double gflops(const Problem& problem) const;
};

struct BenchResult {
  Problem problem;
  std::vector<BenchRow> rows;
  std::int64_t rounds = 0;
  std::int64_t sampled_tokens = 0;  // of the error; 0: not measured
  // Median time over naive's; 0 if naive was not measured.
  double ratio_to_naive(const BenchRow& row) const;
};

// `on_progress(done, all, what)` is called before each piece of work. The process must not have
// run the library before: memory is measured in forked children.
using BenchProgress = std::function<void(std::int64_t, std::int64_t, const std::string&)>;
BenchResult run_bench(const BenchSettings& settings, const BenchProgress& on_progress);

}  // namespace flce::cli
