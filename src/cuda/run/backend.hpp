// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "backend/backend.hpp"

namespace flce::cuda {

const Backend& backend();

}  // namespace flce::cuda
