// SPDX-License-Identifier: Apache-2.0
// One loss step of a real head's size with several methods, each apart from the others. The last
// part of the demo.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "flce/flce.hpp"

namespace flce::cli {

struct HeadStep {
  Method method = Method::kAuto;
  std::int64_t chunk = 0;
  std::uint64_t extra_bytes = 0;   // predicted
  std::uint64_t used_bytes = 0;    // measured by the run
  std::uint64_t growth_bytes = 0;  // by the device's books, see step_memory.hpp
  double seconds = 0.0;
  double loss = 0.0;
  std::string failure;  // not empty: it could not be run
};

// The same random data for all requests.
std::vector<HeadStep> run_head_steps(const Problem& problem, const DeviceCaps& caps,
                                     const std::vector<PlanRequest>& requests);

// How many leading digits of two numbers agree: 1.2345 and 1.2346 agree in 4.
int equal_digits(double a, double b);
// "7", or "all" for the same bits.
std::string digits_text(double a, double b);

}  // namespace flce::cli
