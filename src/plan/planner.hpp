// SPDX-License-Identifier: Apache-2.0
// The planner: a pure function from what is asked to how it will be done.
#pragma once

#include "methods/method.hpp"

namespace flce {

// `problem` must have been validated, `request.chunk` and `budget_bytes` included. Allocates
// nothing unless it throws. With `report_only` refusals stand in Plan::methods and nothing is
// thrown for them; else Error{kUnsupported} or Error{kOutOfBudget}, see flce::plan. `slab`: of
// `recompute`, as an earlier plan found it; 0: chosen.
Plan make_plan(const Registry& registry, const Problem& problem, const DeviceCaps& caps,
               const PlanRequest& request, bool report_only, std::int64_t slab = 0);

}  // namespace flce
