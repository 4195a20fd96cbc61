// SPDX-License-Identifier: Apache-2.0
// A plan together with the memory that it booked: what every command does to call the library.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>

#include "flce/flce.hpp"

namespace flce::cli {

// Loss and gradients, by one call or by two as the plan's pass says. The spans may be larger than
// the plan's.
inline RunReport execute(const Plan& plan, const Inputs& inputs, const Outputs& outputs,
                         std::span<std::byte> workspace, std::span<std::byte> saved) {
  RunReport report;
  if (plan.problem.pass == Pass::kRun) {
    run(plan, inputs, outputs, workspace, {.report = &report});
    return report;
  }
  forward(plan, inputs, outputs, workspace, saved, {.report = &report});
  if (!plan.problem.wants.any_gradient()) return report;
  RunReport second;
  backward(plan, inputs, outputs, workspace, saved, {.report = &second});
  return {std::max(report.workspace_high_water, second.workspace_high_water),
          std::max(report.saved_high_water, second.saved_high_water)};
}

class Step {
 public:
  explicit Step(const Plan& plan)
      : plan_(plan), workspace_(plan.workspace_bytes), saved_(plan.saved_bytes) {}

  const Plan& plan() const noexcept { return plan_; }
  std::span<std::byte> workspace() noexcept { return workspace_.span(); }
  std::span<std::byte> saved() noexcept { return saved_.span(); }

  void execute(const Inputs& inputs, const Outputs& outputs) {
    report_ = cli::execute(plan_, inputs, outputs, workspace(), saved());
  }

  // Bytes that the last execution really used, to compare with plan().extra_bytes.
  std::uint64_t used_bytes() const noexcept {
    return report_.workspace_high_water + report_.saved_high_water;
  }

 private:
  Plan plan_;
  Workspace workspace_;
  Workspace saved_;
  RunReport report_;
};

}  // namespace flce::cli
