// SPDX-License-Identifier: Apache-2.0
// The gradient that comes from above: none, a scalar, one per token, one of the entropy; in one
// call or with forward and backward apart.
#include <gtest/gtest.h>

#include <algorithm>

#include "support/compare.hpp"
#include "support/device.hpp"
#include "support/params.hpp"
#include "support/storage.hpp"

namespace flce_test {
namespace {

using flce::Dtype;
using flce::Method;
using flce::Pass;

class UpstreamTest : public testing::TestWithParam<MethodAndDtype> {
 protected:
  void check(const Case& c, Pass pass) {
    const RunConfig config{GetParam().method, 8, 1, pass};
    ASSERT_NO_THROW(check_case(c, oracle::evaluate(c.in), config)) << describe(c, config);
  }
  bool is_fused() const { return GetParam().method == Method::kFused; }
};

Case upstream_case(Dtype dtype, oracle::Reduction reduction) {
  Case c = basic_case({22, 16, 90}, dtype, 59);
  Rng rng(61);
  c.in.reduction = reduction;
  c.in.bias = random_normals(dtype, 90, 1.0, rng);
  c.wants.grad_bias = true;
  ignore_some(c, 0.2, rng);
  return c;
}

TEST_P(UpstreamTest, ScalarForEveryReduction) {
  for (const oracle::Reduction reduction :
       {oracle::Reduction::kNone, oracle::Reduction::kSum, oracle::Reduction::kMean}) {
    Case c = upstream_case(GetParam().dtype, reduction);
    for (const double upstream : {1.0, -2.5, 0.375}) {
      c.in.grad_output = {upstream};
      check(c, Pass::kRun);
      check(c, Pass::kForwardBackward);
    }
  }
}

TEST_P(UpstreamTest, ZeroGivesExactZeros) {
  for (const Pass pass : {Pass::kRun, Pass::kForwardBackward}) {
    Case c = upstream_case(GetParam().dtype, oracle::Reduction::kMean);
    c.in.grad_output = {0.0};
    const Results results = run_case(c, {GetParam().method, 8, 1, pass}).results;
    EXPECT_TRUE(all_zero(results.grad_hidden));
    EXPECT_TRUE(all_zero(results.grad_weight));
    EXPECT_TRUE(all_zero(results.grad_bias));
  }
}

TEST_P(UpstreamTest, OneIsNoUpstream) {
  for (const Pass pass : {Pass::kRun, Pass::kForwardBackward}) {
    Case c = upstream_case(GetParam().dtype, oracle::Reduction::kMean);
    const Results plain = run_case(c, {GetParam().method, 8, 1, pass}).results;
    c.in.grad_output = {1.0};
    const Results one = run_case(c, {GetParam().method, 8, 1, pass}).results;
    EXPECT_EQ(first_difference(plain, one), "");
  }
}

TEST_P(UpstreamTest, PerToken) {
  Case c = upstream_case(GetParam().dtype, oracle::Reduction::kNone);
  Rng rng(67);
  c.in.grad_output = random_normals(GetParam().dtype, c.in.tokens, 1.0, rng);
  c.in.grad_output[3] = 0.0;
  check(c, Pass::kRun);
  check(c, Pass::kForwardBackward);
}

TEST_P(UpstreamTest, FusedRefusesWhatItCannotKnow) {
  Case c = upstream_case(GetParam().dtype, oracle::Reduction::kNone);
  Rng rng(71);
  c.in.grad_output = random_normals(GetParam().dtype, c.in.tokens, 1.0, rng);
  const RunConfig config{GetParam().method, 8, 1, Pass::kForwardBackward};
  const auto reason = refusal(c, config);
  EXPECT_EQ(reason.has_value(), is_fused());
  if (!is_fused()) return;
  EXPECT_NE(reason->find("recompute"), std::string::npos) << *reason;
  const Memory memory(c);
  flce::PlanRequest request;
  request.method = Method::kFused;
  try {
    flce::plan(memory.problem(c, Pass::kForwardBackward), caps_with(1), request);
    FAIL() << "planned what it refuses";
  } catch (const flce::Error& error) {
    EXPECT_EQ(error.code(), flce::ErrorCode::kUnsupported);
    EXPECT_NE(std::string(error.what()).find(*reason), std::string::npos) << error.what();
  }
  // Left to itself the planner takes a method that serves.
  const flce::Plan chosen = flce::plan(memory.problem(c, Pass::kForwardBackward), caps_with(1));
  EXPECT_EQ(chosen.method, Method::kRecompute);
}

TEST_P(UpstreamTest, EntropyHasAGradient) {
  for (const oracle::Reduction reduction :
       {oracle::Reduction::kNone, oracle::Reduction::kSum, oracle::Reduction::kMean}) {
    Case c = upstream_case(GetParam().dtype, reduction);
    Rng rng(73);
    c.wants.entropy = true;
    c.in.grad_entropy = random_normals(GetParam().dtype, c.in.tokens, 1.0, rng);
    c.in.softcap = 5.0;
    c.in.temperature = 0.8;
    const RunConfig config{GetParam().method, 8};
    EXPECT_EQ(refusal(c, config).has_value(), is_fused());
    check(c, Pass::kRun);
    check(c, Pass::kForwardBackward);
    c.in.grad_output = {0.0};  // the entropy's part alone
    check(c, Pass::kRun);
  }
}

TEST_P(UpstreamTest, SplitCallsGiveTheBitsOfOne) {
  Case c = upstream_case(GetParam().dtype, oracle::Reduction::kMean);
  c.wants.lse = c.wants.entropy = true;
  const Results one = run_case(c, {GetParam().method, 8, 1, Pass::kRun}).results;
  const Results two = run_case(c, {GetParam().method, 8, 1, Pass::kForwardBackward}).results;
  EXPECT_EQ(difference_of_calls(one, two, GetParam().dtype), "");
}

TEST_P(UpstreamTest, BackwardMayBeCalledAgain) {
  if (is_fused()) GTEST_SKIP() << "fused scales the gradients that forward made";
  Case c = upstream_case(GetParam().dtype, oracle::Reduction::kNone);
  Rng rng(79);
  c.in.grad_output = random_normals(GetParam().dtype, c.in.tokens, 1.0, rng);
  const Memory memory(c);
  flce::PlanRequest request;
  request.method = GetParam().method;
  request.chunk = 8;
  const flce::Plan plan =
      flce::plan(memory.problem(c, Pass::kForwardBackward), caps_with(1), request);
  Block workspace(plan.workspace_bytes);
  Block saved(plan.saved_bytes);
  flce_test::forward(plan, memory.inputs(), memory.outputs(), workspace.span(), saved.span());
  const std::vector<std::byte> kept(saved.span().begin(), saved.span().end());
  std::vector<Results> calls;
  for (int call = 0; call < 2; ++call) {
    std::fill(workspace.span().begin(), workspace.span().end(), std::byte{0x7F});
    flce_test::backward(plan, memory.inputs(), memory.outputs(), workspace.span(), saved.span());
    calls.push_back(memory.results());
    EXPECT_TRUE(std::equal(kept.begin(), kept.end(), saved.span().begin())) << "saved changed";
  }
  EXPECT_EQ(first_difference(calls[0], calls[1]), "");
  expect_matches(c, oracle::evaluate(c.in), calls[0], describe(c, {GetParam().method, 8}));
}

TEST_P(UpstreamTest, ScaleGradsMultipliesEachGivenGradient) {
  Case c = upstream_case(GetParam().dtype, oracle::Reduction::kMean);
  c.layout.grad_gap = 3;
  const Memory memory(c);
  flce::PlanRequest request;
  if (on_cuda()) request.route = flce::Route::kPortable;  // for the gap
  const flce::Plan plan = flce::plan(memory.problem(c), caps_with(1), request);
  Block workspace(plan.workspace_bytes);
  flce_test::run(plan, memory.inputs(), memory.outputs(), workspace.span());
  const Results before = memory.results();
  Storage upstream({GetParam().dtype == Dtype::kF64 ? Dtype::kF64 : Dtype::kF32, 1, 1, 1, 0});
  upstream.write(std::vector<double>{-0.5});
  flce::Outputs outputs = memory.outputs();
  outputs.grad_weight = {};
  flce_test::scale_grads(upstream.vector(), outputs);
  const Results after = memory.results();
  for (std::size_t i = 0; i < before.grad_hidden.size(); ++i) {
    const double want = round_to(GetParam().dtype, -0.5 * before.grad_hidden[i]);
    ASSERT_EQ(after.grad_hidden[i], want);
  }
  EXPECT_EQ(after.grad_weight, before.grad_weight);
  EXPECT_EQ(memory.damage(), "");
}

INSTANTIATE_TEST_SUITE_P(Op, UpstreamTest, testing::ValuesIn(methods_and_dtypes()), param_name);

}  // namespace
}  // namespace flce_test
