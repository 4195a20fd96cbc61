# SPDX-License-Identifier: Apache-2.0
# `flce run`, `verify`, `bench`, `train` and `info --calibrate` as a user calls them.
find_package(nlohmann_json REQUIRED)
flce_add_test(test_cli_commands
  SOURCES
    ${CMAKE_CURRENT_LIST_DIR}/test_cli_commands.cpp
    ${CMAKE_CURRENT_LIST_DIR}/test_cli_info.cpp
    ${CMAKE_CURRENT_LIST_DIR}/test_cli_run.cpp
    ${CMAKE_CURRENT_LIST_DIR}/test_cli_usage.cpp
  LIBRARIES flce flce_io nlohmann_json::nlohmann_json)
target_include_directories(test_cli_commands PRIVATE ${CMAKE_CURRENT_LIST_DIR})
target_compile_definitions(test_cli_commands PRIVATE FLCE_CLI="$<TARGET_FILE:flce_cli>")
add_dependencies(test_cli_commands flce_cli)
