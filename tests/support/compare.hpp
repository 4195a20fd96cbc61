// SPDX-License-Identifier: Apache-2.0
// Results against the oracle. Tolerances are bounds on rounding errors that scale with the terms
// that were summed (oracle::Conditioning), not with the result, so they hold where terms cancel.
#pragma once

#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "oracle/oracle.hpp"
#include "support/memory.hpp"
#include "support/runner.hpp"

namespace flce_test {

// ||got - want|| / ||want||, infinite where the sizes or the places of NaN and infinity differ.
double relative_error(const std::vector<double>& got, const std::vector<double>& want);
// Frobenius norm of got - want, with the same rule.
double absolute_error(const std::vector<double>& got, const std::vector<double>& want);
double norm(const std::vector<double>& values);

// Every element within `tolerance` of `want` (relative where `want` is larger than 1); equal NaN
// and infinity match.
testing::AssertionResult all_near(const std::vector<double>& got, const std::vector<double>& want,
                                  double tolerance);
testing::AssertionResult all_zero(const std::vector<double>& values);

// Absolute Frobenius bounds; `token` is per element.
struct Tolerance {
  double token = 0.0;  // of L - u
  double grad_hidden = 0.0;
  double grad_weight = 0.0;
  double grad_bias = 0.0;
};
Tolerance tolerance_of(const Case& c, const oracle::Result& want);

// Every result that was asked for is there and right, and nothing else is.
void expect_matches(const Case& c, const oracle::Result& want, const Results& got,
                    const std::string& description);

// run_case and expect_matches, or a documented refusal.
void check_case(const Case& c, const oracle::Result& want, const RunConfig& config);

}  // namespace flce_test
