// SPDX-License-Identifier: Apache-2.0
// Interleaved rounds: every system of every experiment and the peak probe once, then again, so
// that a slow minute of the machine hits all of them.
#pragma once

#include <string>
#include <vector>

#include "system.hpp"

namespace flce::bench {

struct Settings {
  std::vector<std::string> systems;  // the first is "ours", to which the others are compared
  std::string onednn_isa;            // ONEDNN_MAX_CPU_ISA of this process, or empty
  double seconds = 60.0;             // aim for the rounds of one call
  int min_rounds = 3;
  int max_rounds = 15;
};

struct Row {
  Case shape;
  SystemFacts facts;
  Differences differences;
  std::vector<double> seconds;       // by round
  std::vector<double> ratios;        // to ours of the same round
  std::vector<double> ours_seconds;  // by round
  std::vector<double> peak_flops;    // by round
};

double median(std::vector<double> values);

// All experiments share the rounds. Prints progress to stderr. Systems that are not to be had are
// named in `missing`. Throws std::runtime_error if results disagree.
std::vector<Row> measure(const std::vector<Case>& cases, const Settings& settings,
                         std::vector<std::string>& missing);

}  // namespace flce::bench
