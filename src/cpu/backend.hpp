// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "backend/backend.hpp"

namespace flce::cpu {

// The one CPU backend of the process; it holds no state but the shared worker threads.
const Backend& backend();

}  // namespace flce::cpu
