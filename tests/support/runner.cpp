// SPDX-License-Identifier: Apache-2.0
#include "support/runner.hpp"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <memory>

#include "flce/device.hpp"
#include "support/compare.hpp"
#include "support/device.hpp"
#include "support/wide_tiles.hpp"

namespace flce_test {
namespace {

// Whether Hopper's kernels can fetch and store the rows of this layout (16-bit elements).
bool has_whole_rows(const Case& c) {
  const Layout& l = c.layout;
  const std::int64_t hidden = c.in.hidden;
  if (l.reversed_rows) return false;
  return l.offset % 8 == 0 && (hidden + l.hidden_gap) % 8 == 0 &&
         (hidden + l.weight_gap) % 8 == 0 && (hidden + l.grad_gap) % 8 == 0;
}

flce::PlanRequest request_of(const Case& c, const RunConfig& config) {
  flce::PlanRequest request;
  request.route = test_route();
  if (on_cuda() && !has_whole_rows(c)) request.route = flce::Route::kPortable;
  request.method = config.method;
  request.chunk = config.chunk;
  request.budget_bytes = config.budget_bytes;
  return request;
}

template <typename T>
bool same_bits(const std::vector<T>& a, const std::vector<T>& b) {
  return a.size() == b.size() &&
         (a.empty() || std::memcmp(a.data(), b.data(), a.size() * sizeof(T)) == 0);
}

// Targets are checked on every device, as the CPU does unasked.
flce::RunOptions options_with(flce::RunReport& report) {
  return {.check_targets = true, .report = &report};
}

// Forward with what is known then: no upstream, and gradients only for `fused`.
void run_in_two(const flce::Plan& plan, const Memory& memory, Block& workspace, Block& saved,
                flce::RunReport& report) {
  flce::Inputs inputs = memory.inputs();
  flce::Outputs outputs = memory.outputs();
  flce::RunReport forward_report;
  inputs.grad_output = {};
  inputs.grad_entropy = {};
  if (plan.method != flce::Method::kFused) {
    outputs.grad_hidden = {};
    outputs.grad_weight = {};
    outputs.grad_bias = {};
  }
  flce_test::forward(plan, inputs, outputs, workspace.span(), saved.span(),
                     options_with(forward_report));
  std::fill(workspace.span().begin(), workspace.span().end(), std::byte{0xFF});
  if (plan.problem.wants.any_gradient()) {
    flce_test::backward(plan, memory.inputs(), memory.outputs(), workspace.span(), saved.span(),
                        options_with(report));
  }
  report.workspace_high_water =
      std::max(report.workspace_high_water, forward_report.workspace_high_water);
  report.saved_high_water = std::max(report.saved_high_water, forward_report.saved_high_water);
}

}  // namespace

flce::DeviceCaps caps_with(std::int32_t threads) {
  if (on_cuda()) {
    static const flce::DeviceCaps card = flce::cuda_caps();
    return card;
  }
  static const bool asked = (flce::cpu::use_wide_tables_if_asked(), true);
  static_cast<void>(asked);
  flce::DeviceCaps caps = flce::cpu_caps();
  caps.num_threads = threads;
  return caps;
}

std::string describe(const Case& c, const RunConfig& config) {
  const Memory memory(c);
  const flce::Problem problem = memory.problem(c, config.pass);
  const Layout& l = c.layout;
  return fmt::format(
      "{} | seed {} threads {} | gaps {} {} {} {}, offset {}, strides {} {} {} {} {}{}",
      flce::format_problem(problem, request_of(c, config)), c.seed, config.threads, l.hidden_gap,
      l.weight_gap, l.grad_gap, l.output_gap, l.offset, l.target_stride, l.bias_stride,
      l.class_weight_stride, l.token_weight_stride, l.upstream_stride,
      l.reversed_rows ? " reversed" : "");
}

bool may_refuse(const Case& c, const RunConfig& config) {
  if (config.method != flce::Method::kFused) return false;
  if (!c.wants.any_gradient()) return false;
  if (!c.in.grad_entropy.empty()) return true;
  if (config.pass != flce::Pass::kForwardBackward) return false;
  const bool accumulates = !c.grad_weight_start.empty() || !c.grad_bias_start.empty();
  const bool unreduced = c.in.reduction == oracle::Reduction::kNone;
  return unreduced || (accumulates && !c.in.grad_output.empty());
}

std::optional<std::string> refusal(const Case& c, const RunConfig& config) {
  const Memory memory(c);
  const flce::Plan report = flce::plan_report(memory.problem(c, config.pass),
                                              caps_with(config.threads), request_of(c, config));
  for (const flce::MethodReport& method : report.methods) {
    if (method.method == config.method && method.refused()) return method.refusal.data();
  }
  return std::nullopt;
}

Outcome run_case(const Case& c, const RunConfig& config) {
  const Memory memory(c);
  Outcome outcome;
  outcome.plan =
      flce::plan(memory.problem(c, config.pass), caps_with(config.threads), request_of(c, config));
  Block workspace(outcome.plan.workspace_bytes);
  Block saved(outcome.plan.saved_bytes);
  if (config.pass == flce::Pass::kRun) {
    flce_test::run(outcome.plan, memory.inputs(), memory.outputs(), workspace.span(),
                   options_with(outcome.report));
  } else {
    run_in_two(outcome.plan, memory, workspace, saved, outcome.report);
  }
  outcome.results = memory.results();
  const std::string damage = memory.damage();
  if (!damage.empty()) ADD_FAILURE() << damage << "\n" << describe(c, config);
  if (!workspace.canaries_intact() || !saved.canaries_intact()) {
    ADD_FAILURE() << "bytes around the workspace were written\n" << describe(c, config);
  }
  EXPECT_EQ(outcome.report.workspace_high_water, outcome.plan.workspace_bytes)
      << describe(c, config);
  EXPECT_EQ(outcome.report.saved_high_water, outcome.plan.saved_bytes) << describe(c, config);
  return outcome;
}

std::string difference_of_calls(const Results& a, const Results& b, flce::Dtype dtype) {
  if (!on_cuda()) return first_difference(a, b);
  const double unit = oracle::unit_roundoff(format_of(dtype));
  const double real = dtype == flce::Dtype::kF64 ? 1e-13 : 1e-5;
  const auto differs = [](const std::vector<double>& x, const std::vector<double>& y, double most) {
    return x.size() != y.size() || !(relative_error(x, y) <= most);
  };
  for (const auto& [name, member] : {std::pair{"loss", &Results::loss},
                                     {"lse", &Results::lse},
                                     {"logprob", &Results::logprob},
                                     {"entropy", &Results::entropy},
                                     {"z_loss", &Results::z_loss},
                                     {"topk_logprob", &Results::topk_logprob}}) {
    if (differs(a.*member, b.*member, real)) return name;
  }
  for (const auto& [name, member] : {std::pair{"grad_hidden", &Results::grad_hidden},
                                     {"grad_weight", &Results::grad_weight},
                                     {"grad_bias", &Results::grad_bias}}) {
    if (differs(a.*member, b.*member, 4 * unit + real)) return name;
  }
  return {};
}

std::string first_difference(const Results& a, const Results& b) {
  if (!same_bits(a.loss, b.loss)) return "loss";
  if (!same_bits(a.lse, b.lse)) return "lse";
  if (!same_bits(a.logprob, b.logprob)) return "logprob";
  if (!same_bits(a.entropy, b.entropy)) return "entropy";
  if (!same_bits(a.z_loss, b.z_loss)) return "z_loss";
  if (!same_bits(a.topk_logprob, b.topk_logprob)) return "topk_logprob";
  if (!same_bits(a.topk_index, b.topk_index)) return "topk_index";
  if (!same_bits(a.argmax, b.argmax)) return "argmax";
  if (!same_bits(a.num_correct, b.num_correct)) return "num_correct";
  if (!same_bits(a.num_valid, b.num_valid)) return "num_valid";
  if (!same_bits(a.grad_hidden, b.grad_hidden)) return "grad_hidden";
  if (!same_bits(a.grad_weight, b.grad_weight)) return "grad_weight";
  if (!same_bits(a.grad_bias, b.grad_bias)) return "grad_bias";
  return {};
}

}  // namespace flce_test
