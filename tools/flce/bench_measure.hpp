// SPDX-License-Identifier: Apache-2.0
// What `flce bench` measures: methods and chunk sizes of one problem side by side, each with what
// the plan predicts and what was seen.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "bench_error.hpp"
#include "flce/advice.hpp"
#include "flce/calibrate.hpp"
#include "flce/flce.hpp"
#include "verify_data.hpp"

namespace flce::cli {

// What was asked for.
struct BenchMethod {
  Method method = Method::kAuto;
  bool is_forward = false;  // the loss alone
  bool is_liger = false;    // the chunk of the published rule

  std::string name() const;
  bool operator==(const BenchMethod&) const = default;
};

// A method's name; or "forward", the loss alone by the method that the planner chooses; or
// "fused-liger", fused with the chunk of the published rule. Throws Error{kInvalidArgument} that
// lists the known names.
BenchMethod bench_method_of(std::string_view name);

struct BenchSettings {
  ProblemText text;
  std::vector<BenchMethod> methods;
  std::vector<std::int64_t> chunks;  // token rows; empty: the planner's choice
  std::int64_t rounds = 5;
  std::int64_t warmup = 1;
  double warm_seconds = 3.0;  // CUDA: products before the first round
  DataSettings data;
  DeviceCaps caps;
  std::optional<ModelShape> model;  // CUDA: for the verdict
  bool measure_rss = true;
  bool measure_error = true;
  bool measure_floor = true;  // CUDA: the bare products
};

// One line of the table. Negative numbers mean "not measured".
struct BenchRow {
  BenchMethod asked;
  Method method = Method::kAuto;  // the planner's choice, where it was asked for one
  Route route = Route::kAuto;
  std::int64_t chunk = 0;
  std::int64_t num_chunks = 0;
  std::int32_t gemms = 0;
  // What the plan says.
  std::uint64_t predicted_bytes = 0;  // of workspace and saved memory
  std::uint64_t predicted_peak_bytes = 0;
  double predicted_seconds = 0.0;  // on the CPU with the figures measured in this run
  std::string refused;             // the reason; empty if it serves
  std::string untimed;   // CUDA: the reason, where it serves but did not fit beside the others
  bool runnable = true;  // the eager variants plan more than they run
  // What was seen.
  std::int64_t extra_bytes = -1;   // high-water mark of workspace and saved memory
  std::int64_t peak_bytes = -1;    // inputs and outputs as allocated, and extra_bytes
  std::int64_t rss_bytes = -1;     // growth of the resident set in a process of its own
  std::int64_t device_bytes = -1;  // CUDA: without inputs, as the driver counts the whole card
  std::vector<double> seconds;     // one for each round
  double loss = 0.0;               // the first element, or the reduced loss
  Errors errors;

  bool measured() const { return extra_bytes >= 0; }
  double seconds_median() const;
  double seconds_min() const;
  double seconds_max() const;
  double gflops(const Problem& problem) const;
};

// What a run on a card has beside its rows. Negative numbers mean "not measured".
struct CardFigures {
  std::string name;                        // "NVIDIA H200"
  std::vector<double> floor_seconds;       // the three products alone, of each round
  std::vector<double> hard_floor_seconds;  // of their fastest candidates
  std::string floor_refused;               // why there are none
  std::string error_refused;               // why there are no errors
  double watts = -1.0;                     // medians during the rounds
  double sm_mhz = -1.0;
};

double median_of(std::vector<double> values);  // negative if there are none

struct BenchResult {
  Problem problem;
  PlanRequest request;
  CpuFigures figures;  // measured before and between the rounds, with as many threads
  CardFigures card;    // name empty: this was the CPU
  std::vector<BenchRow> rows;
  std::int64_t rounds = 0;
  DataKind data = DataKind::kRandom;
  Pays pays = Pays::kUnknown;       // CUDA: the planner's verdict
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
