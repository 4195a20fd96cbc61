# SPDX-License-Identifier: Apache-2.0
# `flce plan` and `flce info` as a user calls them.
find_package(nlohmann_json REQUIRED)
flce_add_test(test_cli_plan
  SOURCES ${CMAKE_CURRENT_LIST_DIR}/test_cli_plan.cpp
  LIBRARIES nlohmann_json::nlohmann_json)
target_compile_definitions(test_cli_plan PRIVATE FLCE_CLI="$<TARGET_FILE:flce_cli>")
add_dependencies(test_cli_plan flce_cli)
