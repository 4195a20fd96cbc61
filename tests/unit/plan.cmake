# SPDX-License-Identifier: Apache-2.0
# Tests of the planner: bytes, chunk rules, budgets, cards, verdicts; and of its problem texts.
flce_add_test(test_plan SANITIZERS
  SOURCES
    ${CMAKE_CURRENT_LIST_DIR}/test_plan_advice.cpp
    ${CMAKE_CURRENT_LIST_DIR}/test_plan_budget.cpp
    ${CMAKE_CURRENT_LIST_DIR}/test_plan_bytes.cpp
    ${CMAKE_CURRENT_LIST_DIR}/test_plan_checklist.cpp
    ${CMAKE_CURRENT_LIST_DIR}/test_plan_cost.cpp
    ${CMAKE_CURRENT_LIST_DIR}/test_plan_cuda.cpp
    ${CMAKE_CURRENT_LIST_DIR}/test_plan_hopper_tiles.cpp
    ${CMAKE_CURRENT_LIST_DIR}/test_plan_planner.cpp
    ${CMAKE_CURRENT_LIST_DIR}/test_plan_published.cpp
    ${CMAKE_CURRENT_LIST_DIR}/test_plan_route.cpp
    ${CMAKE_CURRENT_LIST_DIR}/test_problem_text.cpp
  LIBRARIES flce_internal)
