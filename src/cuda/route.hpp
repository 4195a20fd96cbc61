// SPDX-License-Identifier: Apache-2.0
// Which route computes a method. Pure: from the problem, the card's name and the request.
#pragma once

#include "backend/backend.hpp"

namespace flce::cuda {

// Whether this build has the kernels for compute capability 9.0.
bool has_hopper() noexcept;

RouteChoice choose_route(const Problem& problem, const DeviceCaps& caps, const PlanRequest& request,
                         Method method);

}  // namespace flce::cuda
