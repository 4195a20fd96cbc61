# SPDX-License-Identifier: Apache-2.0
# Commands that are killed while they work.
flce_add_test(test_cli_kill
  SOURCES ${CMAKE_CURRENT_LIST_DIR}/test_cli_kill.cpp LIBRARIES flce flce_io)
target_include_directories(test_cli_kill PRIVATE ${CMAKE_CURRENT_LIST_DIR})
target_compile_definitions(test_cli_kill PRIVATE FLCE_CLI="$<TARGET_FILE:flce_cli>")
add_dependencies(test_cli_kill flce_cli)
