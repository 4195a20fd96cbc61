// SPDX-License-Identifier: Apache-2.0
// How every door plans (run.cpp): what is asked is checked, then the planner chooses from the
// registry.
#pragma once

#include "flce/flce.hpp"

namespace flce {

// `report_only` and `slab` as for make_plan (plan/planner.hpp).
Plan checked_plan(const Problem& problem, const DeviceCaps& caps, const PlanRequest& request,
                  bool report_only, std::int64_t slab = 0);

}  // namespace flce
