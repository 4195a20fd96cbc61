// SPDX-License-Identifier: Apache-2.0
// Shorthand for published cases: a head given by its values, run by every method in every type that
// holds those values.
#pragma once

#include <gtest/gtest.h>

#include <cmath>
#include <initializer_list>
#include <limits>
#include <string>
#include <utility>
#include <vector>

#include "support/compare.hpp"
#include "support/device.hpp"
#include "support/params.hpp"
#include "support/storage.hpp"

namespace flce_test {

inline constexpr double kNan = std::numeric_limits<double>::quiet_NaN();
inline constexpr double kInfinity = std::numeric_limits<double>::infinity();
inline constexpr std::array kReductions = {oracle::Reduction::kNone, oracle::Reduction::kSum,
                                           oracle::Reduction::kMean};

using Values = std::vector<double>;
using Integers = std::vector<std::int64_t>;

// hidden (N, H) and weight (V, H), row by row; N from the targets.
inline Case head_case(flce::Dtype dtype, std::int64_t hidden, Values x, Values w, Integers target) {
  Case c;
  c.dtype = dtype;
  c.in.tokens = static_cast<std::int64_t>(target.size());
  c.in.hidden = hidden;
  c.in.vocab = static_cast<std::int64_t>(w.size()) / hidden;
  c.in.x = std::move(x);
  c.in.w = std::move(w);
  c.in.target = std::move(target);
  round_all(dtype, c.in.x);
  round_all(dtype, c.in.w);
  return c;
}

// The weight is the identity, so hidden are the logits and grad_hidden is the logit gradient.
inline Case identity_head(flce::Dtype dtype, std::int64_t vocab, Values logits, Integers target) {
  Values w(static_cast<std::size_t>(vocab * vocab), 0.0);
  for (std::int64_t j = 0; j < vocab; ++j) w[j * vocab + j] = 1.0;
  return head_case(dtype, vocab, std::move(logits), std::move(w), std::move(target));
}

// One hidden unit that is 1 for every token; the weight is `logit` for every class.
inline Case flat_head(flce::Dtype dtype, std::int64_t vocab, double logit, Integers target) {
  Values ones(target.size(), 1.0);  // before the targets move away
  return head_case(dtype, 1, std::move(ones), Values(static_cast<std::size_t>(vocab), logit),
                   std::move(target));
}

inline Results run_with(const Case& c, flce::Method method, std::int64_t chunk = 0) {
  return run_case(c, {method, chunk}).results;
}

// `check(dtype, method)` for every method and the given types, with a trace of both.
template <typename Check>
void for_all(std::initializer_list<flce::Dtype> dtypes, Check check) {
  for (const flce::Dtype dtype : dtypes) {
    for (const flce::Method method : kMethods) {
      SCOPED_TRACE(std::string(flce::name_of(method)) + " " + flce::name_of(dtype));
      check(dtype, method);
    }
  }
}
template <typename Check>
void for_all(Check check) {
  for_all({flce::Dtype::kF64, flce::Dtype::kF32, flce::Dtype::kBF16, flce::Dtype::kF16}, check);
}

// Published values have seven digits; gradients come in `dtype`.
inline double digits(flce::Dtype dtype) {
  return std::max(1e-6, 2 * oracle::unit_roundoff(format_of(dtype)));
}

inline double total(const Values& values) {
  double sum = 0.0;
  for (const double value : values) sum += value;
  return sum;
}
inline double magnitude(const Values& values) {
  double sum = 0.0;
  for (const double value : values) sum += std::abs(value);
  return sum;
}

// The gradients of a softmax sum to 0 over the vocabulary, up to the rounding of its terms.
inline void expect_no_total(const Values& gradient, double share = 4e-3) {
  EXPECT_LE(std::abs(total(gradient)), share * magnitude(gradient));
}

inline void expect_zero_gradients(const Results& results) {
  EXPECT_TRUE(all_zero(results.grad_hidden));
  EXPECT_TRUE(all_zero(results.grad_weight));
  EXPECT_TRUE(all_zero(results.grad_bias));
}

}  // namespace flce_test
