# SPDX-License-Identifier: Apache-2.0
# Tests of the inner rooms: core, math, cpu, parallel. One label each: `san` also runs under ASan
# and UBSan, `tsan` under TSan as well.
function(flce_room_test name label)
  add_executable(test_${name} ${PROJECT_SOURCE_DIR}/tests/unit/test_${name}.cpp)
  target_include_directories(test_${name} PRIVATE ${PROJECT_SOURCE_DIR}/tests)
  target_link_libraries(test_${name} PRIVATE flce_options flce_internal ${ARGN} GTest::gtest_main)
  if(label STREQUAL tsan)
    add_dependencies(tsan_tests test_${name})
  endif()
  gtest_discover_tests(test_${name} DISCOVERY_TIMEOUT 60 PROPERTIES LABELS ${label} TIMEOUT 300)
endfunction()
flce_room_test(calibrate san)
flce_room_test(device san)
flce_room_test(ledger san)
flce_room_test(round san)
flce_room_test(tiles san flce_test_support)
flce_room_test(threads tsan)
flce_room_test(shards tsan)
