# SPDX-License-Identifier: Apache-2.0
# Which device a command takes, where there is no card and where there is one.
find_package(nlohmann_json REQUIRED)
flce_add_test(test_cli_device
  SOURCES ${CMAKE_CURRENT_LIST_DIR}/test_cli_device.cpp
  LIBRARIES flce flce_io nlohmann_json::nlohmann_json)

# On a card; without one it says so and counts as skipped.
add_executable(test_cli_cuda ${CMAKE_CURRENT_LIST_DIR}/test_cli_cuda.cpp)
target_link_libraries(test_cli_cuda PRIVATE
  flce_options flce flce_io nlohmann_json::nlohmann_json GTest::gtest_main)
add_test(NAME cli_cuda COMMAND test_cli_cuda)
set_tests_properties(cli_cuda PROPERTIES
  LABELS gpu TIMEOUT 600 RUN_SERIAL ON SKIP_REGULAR_EXPRESSION "\\[  SKIPPED \\]")

foreach(test IN ITEMS test_cli_device test_cli_cuda)
  target_include_directories(${test} PRIVATE ${CMAKE_CURRENT_LIST_DIR})
  target_compile_definitions(${test} PRIVATE FLCE_CLI="$<TARGET_FILE:flce_cli>")
  add_dependencies(${test} flce_cli)
endforeach()

# The same on pretended cards, which the loader finds where a build has no CUDA part.
if(NOT FLCE_HAS_CUDA AND NOT FLCE_SANITIZE)
  add_library(pretend_cuda SHARED ${CMAKE_CURRENT_LIST_DIR}/pretend_cuda.cpp)
  target_link_libraries(pretend_cuda PRIVATE flce_options flce_internal)
  set_target_properties(pretend_cuda PROPERTIES
    OUTPUT_NAME flce_cuda LIBRARY_OUTPUT_DIRECTORY ${CMAKE_CURRENT_BINARY_DIR}/pretend)
  add_test(NAME cli_pretended_cuda COMMAND test_cli_cuda --gtest_brief=1)
  set_tests_properties(cli_pretended_cuda PROPERTIES
    LABELS unit TIMEOUT 600
    ENVIRONMENT LD_LIBRARY_PATH=${CMAKE_CURRENT_BINARY_DIR}/pretend)
  add_dependencies(test_cli_cuda pretend_cuda)
endif()
