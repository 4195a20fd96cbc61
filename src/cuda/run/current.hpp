// SPDX-License-Identifier: Apache-2.0
// The calling thread's current device, and errors of the CUDA runtime.
#pragma once

#include <cuda_runtime_api.h>

#include <string_view>

namespace flce::cuda {

// Throws Error{kDevice} that names `what`.
void check_cuda(cudaError_t status, const char* what);
// What the launches since the last check left behind.
void check_launch(const char* what);

int current_device();
// Its DeviceCaps::name ("h200"), looked up once a device.
std::string_view current_device_name();

// Makes `device` the current one for a scope.
class DeviceScope {
 public:
  explicit DeviceScope(int device);
  ~DeviceScope();
  DeviceScope(const DeviceScope&) = delete;
  DeviceScope& operator=(const DeviceScope&) = delete;

 private:
  int before_;
};

}  // namespace flce::cuda
