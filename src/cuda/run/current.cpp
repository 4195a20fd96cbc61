// SPDX-License-Identifier: Apache-2.0
#include "cuda/run/current.hpp"

#include <map>
#include <mutex>
#include <string>

#include "core/check.hpp"
#include "core/text.hpp"
#include "plan/caps.hpp"

namespace flce::cuda {

void check_cuda(cudaError_t status, const char* what) {
  if (status == cudaSuccess) return;
  cudaGetLastError();  // it has been taken note of
  fail(ErrorCode::kDevice, "CUDA: {} failed: {} ({})", what, cudaGetErrorString(status),
       cudaGetErrorName(status));
}

void check_launch(const char* what) { check_cuda(cudaGetLastError(), what); }

int current_device() {
  int device = 0;
  check_cuda(cudaGetDevice(&device), "asking for the current device");
  return device;
}

std::string_view current_device_name() {
  static std::mutex mutex;
  static std::map<int, std::string> names;
  const int device = current_device();
  const std::lock_guard<std::mutex> lock(mutex);
  const auto [place, is_new] = names.try_emplace(device);
  if (is_new) {
    cudaDeviceProp properties{};
    check_cuda(cudaGetDeviceProperties(&properties, device), "asking for a device's properties");
    place->second = view_text(caps_of_product(properties.name, properties.totalGlobalMem).name);
  }
  return place->second;
}

DeviceScope::DeviceScope(int device) : before_(current_device()) {
  if (device != before_) check_cuda(cudaSetDevice(device), "changing the current device");
}
DeviceScope::~DeviceScope() { cudaSetDevice(before_); }

}  // namespace flce::cuda
