# SPDX-License-Identifier: Apache-2.0
# The C ABI, used from C11 without extensions and without a warning, through libflce.so alone.
find_package(Python3 3.8 REQUIRED COMPONENTS Interpreter)

foreach(name IN ITEMS c_abi c_abi_errors)
  add_executable(test_${name} test_${name}.c)
  set_target_properties(test_${name} PROPERTIES
    C_STANDARD 11 C_STANDARD_REQUIRED ON C_EXTENSIONS OFF)
  target_compile_options(test_${name} PRIVATE -Wall -Wextra -Werror -pedantic)
  target_link_libraries(test_${name} PRIVATE flce flce_options Threads::Threads m)
  add_dependencies(tsan_tests test_${name})
  add_test(NAME ${name} COMMAND test_${name})
  set_tests_properties(${name} PROPERTIES LABELS "api;san;tsan" TIMEOUT 120)
endforeach()

# The header alone, first in the file, as C11 and as C++: it includes what it needs.
add_library(test_c_header OBJECT c_header.c)
set_target_properties(test_c_header PROPERTIES
  C_STANDARD 11 C_STANDARD_REQUIRED ON C_EXTENSIONS OFF)
target_compile_options(test_c_header PRIVATE -Wall -Wextra -Werror -pedantic -Wstrict-prototypes)
target_include_directories(test_c_header PRIVATE ${PROJECT_SOURCE_DIR}/include)

if(NOT FLCE_SANITIZE AND UNIX AND NOT APPLE)
  add_test(NAME exports COMMAND Python3::Interpreter
    ${CMAKE_CURRENT_SOURCE_DIR}/check_exports.py $<TARGET_FILE:flce>
    ${PROJECT_SOURCE_DIR}/include/flce)
  set_tests_properties(exports PROPERTIES LABELS api)
  if(TARGET flce_cuda_run)
    add_test(NAME exports_cuda COMMAND Python3::Interpreter
      ${CMAKE_CURRENT_SOURCE_DIR}/check_exports.py $<TARGET_FILE:flce_cuda_run>)
    set_tests_properties(exports_cuda PROPERTIES LABELS api)
  endif()
endif()

flce_add_test(test_c_abi_threads
  SOURCES ${CMAKE_CURRENT_LIST_DIR}/test_c_abi_threads.cpp
  LIBRARIES flce Threads::Threads THREADS)
