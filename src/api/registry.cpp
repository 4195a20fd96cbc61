// SPDX-License-Identifier: Apache-2.0
// The only file that names every method and every backend.
#include "api/registry.hpp"

#include <array>

#include "core/check.hpp"
#include "cpu/backend.hpp"
#include "cuda/library.hpp"
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

const Backend& running_backend(DeviceKind kind) {
  if (kind == DeviceKind::kCpu) return cpu::backend();
  require(kind == DeviceKind::kCuda, "there is no device kind {}", static_cast<int>(kind));
  const CudaLibrary* cuda = cuda_library();
  require(cuda != nullptr, ErrorCode::kUnsupported, "{}", cuda_library_refusal());
  return cuda->backend();
}

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
