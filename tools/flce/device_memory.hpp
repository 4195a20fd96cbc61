// SPDX-License-Identifier: Apache-2.0
// Memory where a plan's device can reach it, so that a command is written once for every device: on
// the CPU the views of a call are the caller's own and nothing is copied, on a card they lie in
// DeviceMemory and go there and back.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <variant>
#include <vector>

#include "flce/device.hpp"
#include "flce/flce.hpp"

namespace flce::cli {

// Workspace or saved bytes on one device (of several cards, the current one).
class DeviceBuffer {
 public:
  DeviceBuffer(DeviceKind device, std::uint64_t bytes);
  std::span<std::byte> span() noexcept;
  void fill(std::byte value);

 private:
  std::variant<Workspace, DeviceMemory> memory_;
};

// The inputs and outputs of a call, on the device of its plan. Copies keep the shapes and strides
// of the host's views, also the gaps between rows.
class DeviceTensors {
 public:
  explicit DeviceTensors(const Plan& plan);
  DeviceTensors(const Plan& plan, const Inputs& host_inputs, const Outputs& host_outputs)
      : DeviceTensors(plan) {
    bind(host_inputs, host_outputs);
  }

  // From now on these host views are meant. Device memory is kept where its size still fits, and is
  // undefined until `upload`. The host's memory must outlive the copies.
  void bind(const Inputs& host_inputs, const Outputs& host_outputs);

  // Views with addresses of the device, for `run`, `forward` and `backward`.
  const Inputs& inputs() const noexcept { return inputs_; }
  const Outputs& outputs() const noexcept { return outputs_; }

  // Host to device: inputs and starts.
  void upload();
  // What outputs must hold before a call: the start values of accumulated gradients and gaps
  // between rows. All other outputs become NaN (-1 as integers), so that an element that a call
  // forgets to write is seen.
  void upload_starts();
  // Device to host: every output.
  void download();

 private:
  enum class Role { kInput, kStart, kOutput };
  struct Copy {
    std::byte* host = nullptr;  // the first byte that the view can reach
    std::uint64_t bytes = 0;
    Role role = Role::kInput;
    DeviceMemory memory{};
  };
  struct Binder;

  bool has_copies_ = false;
  bool accumulates_weight_ = false;
  bool accumulates_bias_ = false;
  Inputs inputs_;
  Outputs outputs_;
  std::vector<Copy> copies_;  // one for each view of the two structs, in their order
};

}  // namespace flce::cli
