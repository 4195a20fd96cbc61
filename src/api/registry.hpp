// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "methods/method.hpp"

namespace flce {

// Every method and backend of this build.
const Registry& registry();

// The entry of a method; null for kAuto and unknown ones.
const MethodInfo* find_method(Method method);

}  // namespace flce
