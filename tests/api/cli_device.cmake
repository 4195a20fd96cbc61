# SPDX-License-Identifier: Apache-2.0
# Which device a command takes, where there is no card and where there is one.
find_package(nlohmann_json REQUIRED)
flce_add_test(test_cli_device
  SOURCES ${CMAKE_CURRENT_LIST_DIR}/test_cli_device.cpp
  LIBRARIES flce flce_io nlohmann_json::nlohmann_json)

# The doors on a card; without one the program says so and ends with 77.
add_executable(test_cuda_doors
  ${CMAKE_CURRENT_LIST_DIR}/test_cuda_bench.cpp ${CMAKE_CURRENT_LIST_DIR}/test_cuda_c_abi.cpp
  ${CMAKE_CURRENT_LIST_DIR}/test_cuda_cli.cpp)
target_link_libraries(test_cuda_doors PRIVATE
  flce_options flce flce_io nlohmann_json::nlohmann_json GTest::gtest)
add_test(NAME gpu_doors COMMAND test_cuda_doors --gtest_brief=1)
set_tests_properties(gpu_doors PROPERTIES
  LABELS gpu TIMEOUT 600 RUN_SERIAL ON SKIP_RETURN_CODE 77)
# A program of its own in the list for scripts/gpu/gpu-test.sh, too: its main is another one.
set_property(GLOBAL APPEND PROPERTY FLCE_GPU_TESTS "gpu_doors test_cuda_doors 0 1 TRUE *")
set_property(GLOBAL APPEND PROPERTY FLCE_GPU_PROGRAMS test_cuda_doors)

foreach(test IN ITEMS test_cli_device test_cuda_doors)
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
  add_test(NAME pretended_cuda_doors COMMAND test_cuda_doors --gtest_brief=1)
  set_tests_properties(pretended_cuda_doors PROPERTIES
    LABELS unit TIMEOUT 600
    ENVIRONMENT LD_LIBRARY_PATH=${CMAKE_CURRENT_BINARY_DIR}/pretend)
  add_dependencies(test_cuda_doors pretend_cuda)
endif()
