// SPDX-License-Identifier: Apache-2.0
// A call that is right in everything, for tests that spoil one thing and look at the error. After a
// refusal nothing may have been written.
#pragma once

#include <gtest/gtest.h>

#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "support/memory.hpp"
#include "support/runner.hpp"
#include "support/test_case.hpp"
#include "support/wants.hpp"

namespace flce_test {

inline Case right_case(flce::Dtype dtype = flce::Dtype::kF32) {
  Case c = basic_case({6, 4, 9}, dtype, 211);
  Rng rng(223);
  c.in.bias = random_normals(dtype, 9, 1.0, rng);
  c.in.class_weight = random_weights(c, 9, rng);
  c.in.token_weight = random_weights(c, 6, rng);
  c.in.temperature_per_token = random_weights(c, 6, rng);
  c.in.grad_output = random_normals(dtype, 6, 1.0, rng);
  c.in.reduction = oracle::Reduction::kNone;
  c.wants = every_output(3);
  c.in.topk = 3;
  c.layout.grad_gap = 2;
  return c;
}

// Everything that comes to the library in one call.
struct Call {
  explicit Call(const Case& c)
      : memory(c),
        inputs(memory.inputs()),
        outputs(memory.outputs()),
        options(options_of(c)),
        caps(caps_with(1)) {}

  void make() {
    const flce::Problem problem =
        flce::problem_of(inputs, outputs, options, false, false, flce::Pass::kRun);
    const flce::Plan plan = flce::plan(problem, caps, request);
    Block workspace(plan.workspace_bytes);
    flce::run(plan, inputs, outputs, workspace.span());
  }

  Memory memory;
  flce::Inputs inputs;
  flce::Outputs outputs;
  flce::Options options;
  flce::PlanRequest request;
  flce::DeviceCaps caps;
};

// One way to be wrong, and words that the error must contain.
struct Wrong {
  std::string name;
  std::function<void(Call&)> spoil;
  std::vector<std::string> words;
  flce::ErrorCode code = flce::ErrorCode::kInvalidArgument;
};

inline void PrintTo(const Wrong& wrong, std::ostream* out) { *out << wrong.name; }
inline std::string wrong_name(const testing::TestParamInfo<Wrong>& info) { return info.param.name; }

// The error that `act` ends in.
template <typename Act>
std::optional<flce::Error> caught(Act act) {
  try {
    act();
  } catch (const flce::Error& error) {
    return error;
  }
  return std::nullopt;
}

inline void expect_error(const std::optional<flce::Error>& error, flce::ErrorCode code,
                         const std::vector<std::string>& words) {
  ASSERT_TRUE(error.has_value()) << "no error";
  const std::string text = error->what();
  EXPECT_EQ(error->code(), code) << text;
  for (const std::string& word : words) {
    EXPECT_NE(text.find(word), std::string::npos) << "no '" << word << "' in: " << text;
  }
}

inline void expect_refused(const Case& c, const Wrong& wrong) {
  Call call(c);
  wrong.spoil(call);
  expect_error(caught([&] { call.make(); }), wrong.code, wrong.words);
  EXPECT_EQ(call.memory.written(), "");
  EXPECT_EQ(call.memory.damage(), "");
}

}  // namespace flce_test
