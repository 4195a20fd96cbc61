// SPDX-License-Identifier: Apache-2.0
#include "step_memory.hpp"

#include "flce/device.hpp"

namespace flce::cli {

MemoryGrowth::MemoryGrowth(DeviceKind device) : device_(device) {
  if (device_ == DeviceKind::kCuda) {
    cuda_reset_peak_memory();
    start_bytes_ = cuda_memory_use().allocated_bytes;
  } else {
    resident_.start();
  }
}

std::uint64_t MemoryGrowth::bytes() const {
  if (device_ == DeviceKind::kCpu) return resident_.bytes();
  return cuda_memory_use().peak_allocated_bytes - start_bytes_;
}

const char* growth_name(DeviceKind device) {
  return device == DeviceKind::kCpu ? "resident growth" : "on the card";
}

const char* growth_meaning(DeviceKind device) {
  return device == DeviceKind::kCpu
             ? "resident growth: of the process, with thread stacks and whole pages"
             : "on the card: allocated there, with copies of inputs and results";
}

nlohmann::json run_measured(DeviceKind device, const std::function<nlohmann::json()>& work) {
  return device == DeviceKind::kCpu ? run_in_child(work) : work();
}

}  // namespace flce::cli
