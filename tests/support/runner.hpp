// SPDX-License-Identifier: Apache-2.0
// Runs a case through the library: views, plan, poisoned workspace, run (or forward and backward),
// then everything that may not have been touched is looked at. Damage is a test failure here, so
// that every test of results is a test of memory too.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string>

#include "flce/flce.hpp"
#include "support/memory.hpp"
#include "support/test_case.hpp"

namespace flce_test {

struct RunConfig {
  flce::Method method = flce::Method::kAuto;
  std::int64_t chunk = 0;
  std::int32_t threads = 1;
  flce::Pass pass = flce::Pass::kRun;
  std::uint64_t budget_bytes = 0;
};

struct Outcome {
  flce::Plan plan;
  flce::RunReport report;
  Results results;
};

inline constexpr std::array kMethods = {flce::Method::kNaive, flce::Method::kChunked,
                                        flce::Method::kFused, flce::Method::kRecompute};
inline constexpr std::array kDtypes = {flce::Dtype::kF64, flce::Dtype::kF32, flce::Dtype::kBF16,
                                       flce::Dtype::kF16};

flce::DeviceCaps caps_with(std::int32_t threads);

// The problem text, the seed and the layout: enough to repeat a failure.
std::string describe(const Case& c, const RunConfig& config);

// Whether the method is documented to refuse this (`fused`: an upstream it does not know yet).
bool may_refuse(const Case& c, const RunConfig& config);
// The reason with which the planner refuses the requested method, if it does.
std::optional<std::string> refusal(const Case& c, const RunConfig& config);

Outcome run_case(const Case& c, const RunConfig& config);

// The first result whose bits differ, or an empty text.
std::string first_difference(const Results& a, const Results& b);
// The same for two calls that differ in what is wanted or in how the memory lies. The CPU gives the
// same bits; on a card another leading dimension or another piece of the logits may be another
// kernel, with another order of its sums: there the first result that differs by more than that.
std::string difference_of_calls(const Results& a, const Results& b, flce::Dtype dtype);

}  // namespace flce_test
