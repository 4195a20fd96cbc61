# SPDX-License-Identifier: Apache-2.0
# Errors of the C++ interface.
flce_add_test(test_validation
  SOURCES ${CMAKE_CURRENT_LIST_DIR}/test_validation.cpp
          ${CMAKE_CURRENT_LIST_DIR}/test_validation_options.cpp
  LIBRARIES flce_test_support SANITIZERS)
