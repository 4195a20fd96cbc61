# SPDX-License-Identifier: Apache-2.0
# FLCE_NUM_THREADS and FLCE_ISA as a user of the command line sets them.
find_package(nlohmann_json REQUIRED)
flce_add_test(test_cli_environment
  SOURCES ${CMAKE_CURRENT_LIST_DIR}/test_cli_environment.cpp
  LIBRARIES flce flce_io nlohmann_json::nlohmann_json)
target_include_directories(test_cli_environment PRIVATE ${CMAKE_CURRENT_LIST_DIR})
target_compile_definitions(test_cli_environment PRIVATE FLCE_CLI="$<TARGET_FILE:flce_cli>")
add_dependencies(test_cli_environment flce_cli)
