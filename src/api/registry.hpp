// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "methods/method.hpp"

namespace flce {

// Every method of this build, and the backends as the planner asks them: looks at no device.
const Registry& registry();

// The backend that runs on a kind of device. Loads the CUDA part of the library when that is asked
// for; throws Error{kUnsupported} with the reason where there is none.
const Backend& running_backend(DeviceKind kind);

// The entry of a method; null for kAuto and unknown ones.
const MethodInfo* find_method(Method method);

}  // namespace flce
