// SPDX-License-Identifier: Apache-2.0
// What the tests of route hopper share.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <functional>
#include <optional>

#include "flce/device.hpp"
#include "support/compare.hpp"
#include "support/device.hpp"
#include "support/params.hpp"
#include "support/storage.hpp"

namespace flce_test {

inline Case hopper_case(const Sizes& sizes, std::uint64_t seed, Data data = Data::kRandom) {
  Case c = basic_case(sizes, flce::Dtype::kBF16, seed, data);
  c.wants.lse = c.wants.logprob = c.wants.num_valid = true;
  return c;
}

// Rows with a column of their own, by which any logit can be set: x has a 1 at place `row`.
inline Case with_logits(std::int64_t tokens, std::int64_t vocab,
                        const std::function<double(std::int64_t, std::int64_t)>& logit) {
  Case c = hopper_case({tokens, (tokens + 7) / 8 * 8, vocab}, 31);
  std::fill(c.in.x.begin(), c.in.x.end(), 0.0);
  std::fill(c.in.w.begin(), c.in.w.end(), 0.0);
  for (std::int64_t i = 0; i < tokens; ++i) {
    c.in.x[i * c.in.hidden + i] = 1.0;
    for (std::int64_t j = 0; j < vocab; ++j) {
      c.in.w[j * c.in.hidden + i] = round_to(flce::Dtype::kBF16, logit(i, j));
    }
  }
  return c;
}

inline constexpr Sizes kRagged[] = {{1, 8, 2},      {3, 16, 191},     {127, 8, 193},
                                    {129, 72, 385}, {257, 136, 1021}, {300, 256, 4099},
                                    {1025, 24, 777}};

inline Case option_case(const Sizes& sizes, std::uint64_t seed, Data data = Data::kRandom) {
  Case c = hopper_case(sizes, seed, data);
  Rng rng(seed + 1);
  ignore_some(c, 0.2, rng);
  c.in.target[0] = sizes.vocab - 1;
  return c;
}

inline void want_statistics(Case& c) {
  c.wants.entropy = c.wants.argmax = c.wants.num_correct = true;
}

inline void add_bias(Case& c, double size, std::uint64_t seed) {
  Rng rng(seed);
  c.in.bias = random_normals(c.vectors(), c.in.vocab, size, rng);
  c.wants.grad_bias = true;
}

// The gradient of the entropy is made by recompute alone.
inline void add_entropy_gradient(Case& c, std::uint64_t seed) {
  Rng rng(seed);
  c.wants.entropy = true;
  c.in.grad_entropy = random_normals(c.vectors(), c.in.tokens, 0.5, rng);
}

// Of a plan by recompute.
inline std::int64_t slab_of(const Case& c) {
  flce::PlanRequest request;
  request.method = flce::Method::kRecompute;
  request.route = flce::Route::kHopper;
  const Memory memory(c);
  const std::int64_t slab = flce::plan(memory.problem(c), caps_with(1), request).slab;
  EXPECT_LT(slab, c.in.vocab) << "one slab holds all";
  return slab;
}

class HopperTest : public testing::TestWithParam<flce::Method> {
 protected:
  void SetUp() override {
    if (test_route() == flce::Route::kPortable || !has_route()) {
      GTEST_SKIP() << "this card, or this build, has no route hopper";
    }
    route_.emplace(flce::Route::kHopper);  // also for small chunks
  }

  Results run(const Case& c, std::int64_t chunk = 0, flce::Pass pass = flce::Pass::kRun) {
    const RunConfig config{GetParam(), chunk, 1, pass};
    Outcome outcome = run_case(c, config);
    EXPECT_EQ(outcome.plan.route, flce::Route::kHopper) << describe(c, config);
    EXPECT_LE(outcome.report.workspace_high_water, outcome.plan.workspace_bytes);
    return outcome.results;
  }

  void check(const Case& c, std::int64_t chunk = 0, flce::Pass pass = flce::Pass::kRun) {
    const Results got = run(c, chunk, pass);
    expect_matches(c, oracle::evaluate(c.in), got, describe(c, {GetParam(), chunk}));
  }

 private:
  static bool has_route() {
    Case c = basic_case({8, 8, 8}, flce::Dtype::kBF16, 1);
    const Memory memory(c);
    return flce::plan(memory.problem(c), caps_with(1)).route == flce::Route::kHopper;
  }

  std::optional<RouteScope> route_;
};

}  // namespace flce_test
