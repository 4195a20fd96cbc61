# SPDX-License-Identifier: Apache-2.0
# FLCE_HAS_HOPPER: whether the kernels for compute capability 9.0 alone (src/kernels/hopper) are
# built. They need CUTLASS's headers, FLCE_CUTLASS_INCLUDE_DIR: those that FLCE_CUTLASS_DIR names,
# in the cache or else in the environment, or those that ./dev has fetched (scripts/dev/cutlass.sh).
# Nothing is fetched here, and without headers all else is built as usual.
set(FLCE_CUTLASS_DIR "" CACHE PATH
  "The folder with cutlass/cutlass.h, of CUTLASS 4.2 or newer (default: what ./dev has fetched)")
set(FLCE_HAS_HOPPER OFF)
if(NOT FLCE_HAS_CUDA)
  return()
endif()
if(NOT FLCE_CUDA_ARCHITECTURES_USED MATCHES "(^|;)90")
  message(STATUS "Hopper kernels: not built, the architectures have no 90")
  return()
endif()

set(flce_cutlass_named "${FLCE_CUTLASS_DIR}")
if(NOT flce_cutlass_named)
  set(flce_cutlass_named "$ENV{FLCE_CUTLASS_DIR}")
endif()
set(FLCE_CUTLASS_INCLUDE_DIR ${PROJECT_SOURCE_DIR}/build/third_party/cutlass-4.2.0/include)
if(flce_cutlass_named)
  get_filename_component(FLCE_CUTLASS_INCLUDE_DIR "${flce_cutlass_named}" ABSOLUTE
    BASE_DIR ${PROJECT_SOURCE_DIR})
endif()
if(NOT EXISTS ${FLCE_CUTLASS_INCLUDE_DIR}/cutlass/cutlass.h)
  if(flce_cutlass_named)
    message(FATAL_ERROR "FLCE_CUTLASS_DIR is '${flce_cutlass_named}', but there is no "
      "${FLCE_CUTLASS_INCLUDE_DIR}/cutlass/cutlass.h; name the folder 'include' of CUTLASS 4.2 or "
      "newer, or leave FLCE_CUTLASS_DIR empty")
  endif()
  message(STATUS "Hopper kernels: not built, CUTLASS's headers are not here (./dev build fetches "
    "them, FLCE_CUTLASS_DIR names others)")
  return()
endif()

set(FLCE_CUTLASS_VERSION "of an unknown version")
if(EXISTS ${FLCE_CUTLASS_INCLUDE_DIR}/cutlass/version.h)
  file(STRINGS ${FLCE_CUTLASS_INCLUDE_DIR}/cutlass/version.h flce_cutlass_numbers
    REGEX "#define CUTLASS_(MAJOR|MINOR|PATCH) ")
  string(REGEX REPLACE "[^;]*CUTLASS_[A-Z]+ +([0-9]+)[^;]*" "\\1" flce_cutlass_numbers
    "${flce_cutlass_numbers}")
  list(JOIN flce_cutlass_numbers "." FLCE_CUTLASS_VERSION)
endif()
if(NOT FLCE_CUTLASS_VERSION VERSION_GREATER_EQUAL 4.2)
  message(FATAL_ERROR "CUTLASS in ${FLCE_CUTLASS_INCLUDE_DIR} is ${FLCE_CUTLASS_VERSION}; the "
    "Hopper kernels need 4.2 or newer: name one by FLCE_CUTLASS_DIR, or leave that empty")
endif()
set(FLCE_HAS_HOPPER ON)
message(STATUS "Hopper kernels: CUTLASS ${FLCE_CUTLASS_VERSION} in ${FLCE_CUTLASS_INCLUDE_DIR}")
