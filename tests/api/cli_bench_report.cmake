# SPDX-License-Identifier: Apache-2.0
# What `flce bench` writes for a card, from made-up results, and the pieces that need no card.
find_package(CLI11 REQUIRED)
find_package(nlohmann_json REQUIRED)
set(flce_tool ${PROJECT_SOURCE_DIR}/tools/flce)
flce_add_test(test_bench_report
  SOURCES
    ${CMAKE_CURRENT_LIST_DIR}/test_bench_report.cpp
    ${flce_tool}/bench_card.cpp ${flce_tool}/bench_csv.cpp ${flce_tool}/bench_cuda_report.cpp
    ${flce_tool}/bench_order.cpp ${flce_tool}/bench_result.cpp ${flce_tool}/common.cpp
    ${flce_tool}/parallel.cpp ${flce_tool}/random_matrix.cpp ${flce_tool}/verify_data.cpp
    ${flce_tool}/verify_numbers.cpp
  LIBRARIES flce flce_io flce_fmt CLI11::CLI11 nlohmann_json::nlohmann_json Threads::Threads)
target_include_directories(test_bench_report PRIVATE ${PROJECT_SOURCE_DIR}/tools)
