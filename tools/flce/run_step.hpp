// SPDX-License-Identifier: Apache-2.0
// A plan together with the memory that it booked: what every command does to call the library, on
// any device.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "device_memory.hpp"
#include "flce/flce.hpp"

namespace flce::cli {

// Loss and gradients, by one call or by two as the plan's pass says, of views that the plan's
// device can reach. The spans may be larger than the plan's. `options.report` is not looked at: the
// answer is one.
RunReport execute(const Plan& plan, const Inputs& inputs, const Outputs& outputs,
                  std::span<std::byte> workspace, std::span<std::byte> saved,
                  flce::RunOptions options = {});

class Step {
 public:
  // Workspace and saved bytes are taken here, copies of inputs and outputs by the first execution.
  explicit Step(const Plan& plan)
      : plan_(plan),
        workspace_(plan.caps.kind, plan.workspace_bytes),
        saved_(plan.caps.kind, plan.saved_bytes),
        tensors_(plan) {}

  const Plan& plan() const noexcept { return plan_; }
  // Every byte of workspace and saved.
  void fill(std::byte value);

  // Of the host's views. Waits until the results are there; a target out of range is an error, and
  // the host's outputs are as before then.
  void execute(const Inputs& inputs, const Outputs& outputs);

  // Bytes that the last execution really used, to compare with plan().extra_bytes.
  std::uint64_t used_bytes() const noexcept {
    return report_.workspace_high_water + report_.saved_high_water;
  }
  // Of the last execution, without the copies between host and device.
  double seconds() const noexcept { return seconds_; }

 private:
  Plan plan_;
  DeviceBuffer workspace_;
  DeviceBuffer saved_;
  DeviceTensors tensors_;
  RunReport report_;
  double seconds_ = 0.0;
};

}  // namespace flce::cli
