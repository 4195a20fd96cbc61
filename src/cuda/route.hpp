// SPDX-License-Identifier: Apache-2.0
// Which route computes a method. Pure: from the problem, the card's name and the request.
#pragma once

#include "backend/backend.hpp"

namespace flce::cuda {

// Whether this library (each of the two has its own definition) has the kernels for 9.0.
#ifdef FLCE_HAS_HOPPER
inline constexpr bool kHasHopper = true;
#else
inline constexpr bool kHasHopper = false;
#endif
// The same, for who links it.
bool has_hopper() noexcept;

RouteChoice choose_route(const Problem& problem, const DeviceCaps& caps, const PlanRequest& request,
                         Method method);

}  // namespace flce::cuda
