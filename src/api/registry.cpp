// SPDX-License-Identifier: Apache-2.0
// The only file that names every method and every backend.
#include "api/registry.hpp"

#include <array>

#include "cpu/backend.hpp"
#include "cuda/plan_backend.hpp"
#include "methods/methods.hpp"

namespace flce {
namespace {

// In the order in which Method::kAuto prefers them: fused where it serves, recompute for any other
// upstream gradient.
constexpr std::array<const MethodInfo*, kNumMethods - 1> kMethods{
    &kMethodFused, &kMethodRecompute,  &kMethodChunked,
    &kMethodNaive, &kMethodNaiveEager, &kMethodChunkedEager};

const Backend* backend_of(DeviceKind kind) {
  return kind == DeviceKind::kCpu ? &cpu::backend() : &cuda_plan_backend();
}

}  // namespace

const Registry& registry() {
  static constexpr Registry instance{kMethods.data(), static_cast<int>(kMethods.size()),
                                     &backend_of};
  return instance;
}

const MethodInfo* find_method(Method method) {
  for (const MethodInfo* info : kMethods) {
    if (info->method == method) return info;
  }
  return nullptr;
}

}  // namespace flce
