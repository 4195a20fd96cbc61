// SPDX-License-Identifier: Apache-2.0
// Wrong options, targets, workspaces, plans and budgets.
#include <gtest/gtest.h>

#include <cctype>
#include <limits>
#include <utility>

#include "api/wrong_call.hpp"

namespace flce_test {
namespace {

using flce::Dtype;
using flce::ErrorCode;
using flce::Method;
using flce::Pass;
using flce::Reduction;

constexpr double kNan = std::numeric_limits<double>::quiet_NaN();
constexpr double kInfinity = std::numeric_limits<double>::infinity();

class WrongOption : public testing::TestWithParam<Wrong> {};

TEST_P(WrongOption, IsRefusedByName) {
  Case c = right_case();
  c.in.temperature_per_token.clear();
  expect_refused(c, GetParam());
}

Wrong option(const char* name, double flce::Options::*member, double value,
             std::vector<std::string> words) {
  return {name, [=](Call& call) { call.options.*member = value; }, std::move(words)};
}

INSTANTIATE_TEST_SUITE_P(
    Number, WrongOption,
    testing::Values(
        option("smoothing_above", &flce::Options::label_smoothing, 1.5, {"label_smoothing", "1.5"}),
        option("smoothing_below", &flce::Options::label_smoothing, -0.1,
               {"label_smoothing", "-0.1"}),
        option("smoothing_nan", &flce::Options::label_smoothing, kNan, {"label_smoothing", "nan"}),
        option("z_loss_below", &flce::Options::z_loss, -1e-4, {"z_loss"}),
        option("z_loss_nan", &flce::Options::z_loss, kNan, {"z_loss", "nan"}),
        option("z_loss_infinite", &flce::Options::z_loss, kInfinity, {"z_loss", "inf"}),
        option("softcap_below", &flce::Options::softcap, -30.0, {"softcap", "-30"}),
        option("softcap_nan", &flce::Options::softcap, kNan, {"softcap", "nan"}),
        option("scale_nan", &flce::Options::scale, kNan, {"scale", "nan"}),
        option("scale_infinite", &flce::Options::scale, kInfinity, {"scale", "inf"}),
        option("temperature_zero", &flce::Options::temperature, 0.0, {"temperature", "0"}),
        option("temperature_below", &flce::Options::temperature, -2.0, {"temperature", "-2"}),
        option("softcap_underflows", &flce::Options::softcap, 1e-50, {"softcap", "1e-50", "f32"}),
        option("softcap_denormal", &flce::Options::softcap, 1e-39, {"softcap", "1.18e-38"}),
        option("softcap_overflows", &flce::Options::softcap, 1e39, {"softcap", "3.4e+38"}),
        option("scale_overflows", &flce::Options::scale, -1e300, {"scale", "-1e+300", "f32"}),
        option("scale_underflows", &flce::Options::scale, 1e-50, {"scale", "1e-50", "f32"}),
        option("z_loss_overflows", &flce::Options::z_loss, 1e300, {"z_loss", "1e+300", "f32"}),
        option("temperature_underflows", &flce::Options::temperature, 1e-50,
               {"temperature", "1e-50", "f32"}),
        option("temperature_overflows", &flce::Options::temperature, 1e39,
               {"temperature", "1e+39", "f32"}),
        option("temperature_nan", &flce::Options::temperature, kNan, {"temperature", "nan"})),
    wrong_name);

void with_upstream_of(Call& call, std::int64_t size, Reduction reduction) {
  call.options.reduction = reduction;
  call.inputs.grad_output.size = size;
  call.outputs.loss.size = call.outputs.z_loss.size = reduction == Reduction::kNone ? 6 : 1;
}

INSTANTIATE_TEST_SUITE_P(
    Combination, WrongOption,
    testing::Values(
        Wrong{"upstream_per_token_of_a_mean",
              [](Call& call) { with_upstream_of(call, 6, Reduction::kMean); },
              {"grad_output", "mean"}},
        Wrong{"upstream_per_token_of_a_sum",
              [](Call& call) { with_upstream_of(call, 6, Reduction::kSum); },
              {"grad_output", "sum"}},
        Wrong{"normalizer_of_a_mean",
              [](Call& call) {
                with_upstream_of(call, 1, Reduction::kMean);
                call.options.normalizer = 3;
                call.options.has_normalizer = true;
              },
              {"normalizer", "mean", "sum"}},
        Wrong{"normalizer_of_no_reduction",
              [](Call& call) {
                call.options.normalizer = 3;
                call.options.has_normalizer = true;
              },
              {"normalizer", "none", "sum"}},
        Wrong{"normalizer_nan",
              [](Call& call) {
                with_upstream_of(call, 1, Reduction::kSum);
                call.options.normalizer = kNan;
                call.options.has_normalizer = true;
              },
              {"normalizer", "nan"}},
        Wrong{"negative_shift", [](Call& call) { call.options.shift = -1; }, {"shift", "-1"}},
        Wrong{"negative_sequence",
              [](Call& call) { call.options.sequence_length = -2; },
              {"sequence_length", "-2"}},
        Wrong{"sequence_does_not_divide",
              [](Call& call) { call.options.sequence_length = 4; },
              {"sequence_length", "4", "6"}},
        Wrong{"sequence_without_a_shift",
              [](Call& call) { call.options.sequence_length = 3; },
              {"sequence_length 3", "shift is 0"}},
        Wrong{"topk_above_the_vocabulary",
              [](Call& call) {
                call.outputs.topk_logprob.cols = call.outputs.topk_logprob.row_stride = 10;
                call.outputs.topk_index.cols = call.outputs.topk_index.row_stride = 10;
              },
              {"topk", "10", "9"}},
        Wrong{"negative_chunk", [](Call& call) { call.request.chunk = -4; }, {"chunk", "-4"}},
        Wrong{"an_eager_model",
              [](Call& call) { call.request.method = Method::kNaiveEager; },
              {"naive"},
              ErrorCode::kUnsupported}),
    wrong_name);

TEST(WrongTarget, NamesTokenAndValueAndWritesNothing) {
  for (const std::int64_t value :
       {std::int64_t{9}, std::int64_t{100}, std::int64_t{-1}, std::int64_t{-2},
        std::int64_t{1} << 31, -(std::int64_t{1} << 40)}) {
    for (const Method method : kMethods) {
      Case c = right_case();
      c.in.target[4] = value;
      expect_refused(c, {"",
                         [=](Call& call) { call.request.method = method; },
                         {"4", std::to_string(value)},
                         ErrorCode::kTargetOutOfRange});
    }
  }
}

TEST(WrongTarget, InI32) {
  Case c = right_case();
  c.target_dtype = Dtype::kI32;
  c.in.target[0] = 9;
  expect_refused(c, {"", [](Call&) {}, {"0", "9"}, ErrorCode::kTargetOutOfRange});
}

TEST(WrongTarget, OfAnotherIgnoreIndex) {
  Case c = right_case();
  c.in.target[2] = -100;
  c.in.ignore_index = -1;
  expect_refused(c, {"", [](Call&) {}, {"2", "-100"}, ErrorCode::kTargetOutOfRange});
}

TEST(WrongTemperature, NamesTokenAndValueAndWritesNothing) {
  for (const auto& [value, word] :
       {std::pair{0.0, "0"}, std::pair{-0.5, "-0.5"}, std::pair{1e-39, "e-"},
        std::pair{kNan, "nan"}, std::pair{kInfinity, "inf"}, std::pair{-kInfinity, "-inf"}}) {
    for (const Method method : kMethods) {
      Case c = right_case();
      c.in.temperature_per_token[4] = value;
      const auto by_method = [=](Call& call) { call.request.method = method; };
      expect_refused(c, {"", by_method, {"temperature[4]", word, "positive"}});
      c.in.target[4] = c.in.ignore_index;
      Call call(c);
      by_method(call);
      EXPECT_NO_THROW(call.make());
    }
  }
}

struct Planned {
  explicit Planned(const Case& c, Pass pass = Pass::kRun)
      : memory(c), plan(flce::plan(memory.problem(c, pass), caps_with(1), request())) {}
  static flce::PlanRequest request() {
    flce::PlanRequest request;
    request.method = Method::kRecompute;
    return request;
  }
  Memory memory;
  flce::Plan plan;
};

TEST(WrongWorkspace, TooSmall) {
  Planned planned(right_case());
  ASSERT_GT(planned.plan.workspace_bytes, 0U);
  Block block(planned.plan.workspace_bytes);
  const auto bytes = block.span().first(block.span().size() - 1);
  expect_error(
      caught([&] {
        flce::run(planned.plan, planned.memory.inputs(), planned.memory.outputs(), bytes);
      }),
      ErrorCode::kWorkspaceTooSmall,
      {"workspace", std::to_string(planned.plan.workspace_bytes), std::to_string(bytes.size())});
  EXPECT_EQ(planned.memory.written(), "");
}

TEST(WrongWorkspace, Misaligned) {
  Planned planned(right_case());
  Block block(planned.plan.workspace_bytes + 64);
  const auto bytes = block.span().subspan(4, planned.plan.workspace_bytes);
  expect_error(caught([&] {
                 flce::run(planned.plan, planned.memory.inputs(), planned.memory.outputs(), bytes);
               }),
               ErrorCode::kInvalidArgument, {"workspace", "64"});
  EXPECT_EQ(planned.memory.written(), "");
}

TEST(WrongWorkspace, InsideAnOutput) {
  const Case c = basic_case({2, 64, 9}, Dtype::kF32, 1);
  Memory memory(c);
  flce::PlanRequest request;
  request.method = Method::kRecompute;
  const flce::Plan plan = flce::plan(memory.problem(c), caps_with(1), request);
  Block block(plan.workspace_bytes + 9 * 64 * 4);
  flce::Outputs outputs = memory.outputs();
  outputs.grad_weight.data = block.data();
  expect_error(caught([&] { flce::run(plan, memory.inputs(), outputs, block.span()); }),
               ErrorCode::kInvalidArgument, {"grad_weight", "workspace", "overlap"});
  EXPECT_EQ(memory.written(), "");
}

TEST(WrongWorkspace, SavedTooSmallOrMisaligned) {
  Planned planned(right_case(), Pass::kForwardBackward);
  ASSERT_GT(planned.plan.saved_bytes, 0U);
  Block workspace(planned.plan.workspace_bytes);
  Block saved(planned.plan.saved_bytes + 64);
  const auto call = [&](std::span<std::byte> bytes) {
    return caught([&] {
      flce::forward(planned.plan, planned.memory.inputs(), planned.memory.outputs(),
                    workspace.span(), bytes);
    });
  };
  expect_error(call(saved.span().first(planned.plan.saved_bytes - 1)),
               ErrorCode::kWorkspaceTooSmall, {"saved"});
  expect_error(call(saved.span().subspan(8, planned.plan.saved_bytes)), ErrorCode::kInvalidArgument,
               {"saved", "64"});
  EXPECT_EQ(planned.memory.written(), "");
}

TEST(WrongPlan, OfAnotherProblem) {
  const Case c = right_case();
  Case longer = basic_case({7, 4, 9}, Dtype::kF32, 1);
  Planned planned(longer);
  Memory memory(c);
  Block workspace(planned.plan.workspace_bytes);
  const auto run = [&](const flce::Plan& plan) {
    return caught([&] { flce::run(plan, memory.inputs(), memory.outputs(), workspace.span()); });
  };
  expect_error(run(planned.plan), ErrorCode::kInvalidArgument, {"plan"});
  expect_error(run(flce::Plan{}), ErrorCode::kInvalidArgument, {"plan"});
  EXPECT_EQ(memory.written(), "");
}

TEST(WrongPlan, OfTheOtherPass) {
  const Case c = right_case();
  Planned whole(c, Pass::kRun);
  Planned split(c, Pass::kForwardBackward);
  Block workspace(std::max(whole.plan.workspace_bytes, split.plan.workspace_bytes));
  Block saved(split.plan.saved_bytes);
  const flce::Inputs inputs = whole.memory.inputs();
  const flce::Outputs outputs = whole.memory.outputs();
  const auto expect_refusal = [](const std::optional<flce::Error>& error) {
    expect_error(error, ErrorCode::kInvalidArgument, {"forward"});
  };
  expect_refusal(caught([&] { flce::run(split.plan, inputs, outputs, workspace.span()); }));
  expect_refusal(
      caught([&] { flce::forward(whole.plan, inputs, outputs, workspace.span(), saved.span()); }));
  expect_refusal(
      caught([&] { flce::backward(whole.plan, inputs, outputs, workspace.span(), saved.span()); }));
  EXPECT_EQ(whole.memory.written(), "");
}

// The numbers of bytes that a text mentions.
std::vector<std::uint64_t> byte_counts(const std::string& text) {
  std::vector<std::uint64_t> counts;
  for (std::size_t at = 0; at < text.size(); ++at) {
    if (std::isdigit(static_cast<unsigned char>(text[at])) == 0) continue;
    std::size_t end = at;
    while (end < text.size() && std::isdigit(static_cast<unsigned char>(text[end])) != 0) ++end;
    counts.push_back(std::stoull(text.substr(at, end - at)));
    at = end;
  }
  return counts;
}

TEST(WrongBudget, NamesTheSmallestThatWorks) {
  const Case c = basic_case({300, 32, 500}, Dtype::kBF16, 1);
  const Memory memory(c);
  const flce::Problem problem = memory.problem(c);
  for (const Method method :
       {Method::kAuto, Method::kNaive, Method::kChunked, Method::kFused, Method::kRecompute}) {
    flce::PlanRequest request;
    request.method = method;
    request.budget_bytes = 1;
    const auto error = caught([&] { flce::plan(problem, caps_with(1), request); });
    expect_error(error, ErrorCode::kOutOfBudget, {});
    if (!error.has_value()) return;
    bool named = false;
    for (const std::uint64_t count : byte_counts(error->what())) {
      if (count < 2) continue;
      request.budget_bytes = count;
      const bool works = !caught([&] { flce::plan(problem, caps_with(1), request); });
      request.budget_bytes = count - 1;
      const bool less = !caught([&] { flce::plan(problem, caps_with(1), request); });
      named = named || (works && !less);
    }
    EXPECT_TRUE(named) << error->what();
  }
}

TEST(WrongBudget, ReportsInsteadOfThrowing) {
  const Case c = basic_case({300, 32, 500}, Dtype::kBF16, 1);
  flce::PlanRequest request;
  request.budget_bytes = 1;
  const flce::Plan report = flce::plan_report(Memory(c).problem(c), caps_with(1), request);
  EXPECT_EQ(report.method, Method::kAuto);
  for (const flce::MethodReport& method : report.methods) EXPECT_TRUE(method.refused());
}

}  // namespace
}  // namespace flce_test
