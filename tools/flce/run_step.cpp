// SPDX-License-Identifier: Apache-2.0
#include "run_step.hpp"

#include <algorithm>
#include <chrono>

namespace flce::cli {

RunReport execute(const Plan& plan, const Inputs& inputs, const Outputs& outputs,
                  std::span<std::byte> workspace, std::span<std::byte> saved,
                  flce::RunOptions options) {
  RunReport report;
  options.report = &report;
  if (plan.problem.pass == Pass::kRun) {
    run(plan, inputs, outputs, workspace, options);
    return report;
  }
  forward(plan, inputs, outputs, workspace, saved, options);
  if (!plan.problem.wants.any_gradient()) return report;
  RunReport second;
  options.report = &second;
  backward(plan, inputs, outputs, workspace, saved, options);
  return {std::max(report.workspace_high_water, second.workspace_high_water),
          std::max(report.saved_high_water, second.saved_high_water)};
}

void Step::fill(std::byte value) {
  workspace_.fill(value);
  saved_.fill(value);
}

void Step::execute(const Inputs& inputs, const Outputs& outputs) {
  tensors_.bind(inputs, outputs);
  tensors_.upload();
  const auto start = std::chrono::steady_clock::now();
  // With the check the call returns when the work is done.
  report_ = cli::execute(plan_, tensors_.inputs(), tensors_.outputs(), workspace_.span(),
                         saved_.span(), {.check_targets = true});
  seconds_ = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  tensors_.download();
}

}  // namespace flce::cli
