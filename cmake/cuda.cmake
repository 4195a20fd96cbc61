# SPDX-License-Identifier: Apache-2.0
# Whether the CUDA part is built, and how. It is a library of its own (src/cuda/run), loaded when a
# program asks for it: what is built here runs on machines without a driver as well.
#
# The kernels of one folder of src/kernels are one object library with its own architectures.
set(FLCE_HAS_CUDA OFF)
if(NOT FLCE_CUDA STREQUAL "OFF" AND NOT CMAKE_CROSSCOMPILING AND NOT FLCE_SANITIZE)
  include(CheckLanguage)
  check_language(CUDA)
  if(CMAKE_CUDA_COMPILER)
    set(CMAKE_CUDA_ARCHITECTURES 80)  # of CMake's own trials
    enable_language(CUDA)
    find_package(CUDAToolkit 12.0)
  endif()
  if(CMAKE_CUDA_COMPILER AND CUDAToolkit_FOUND)
    set(FLCE_HAS_CUDA ON)
  elseif(FLCE_CUDA STREQUAL "ON")
    message(FATAL_ERROR "FLCE_CUDA is ON, but no CUDA toolkit 12.0 or newer was found; put nvcc on "
      "the PATH or set CMAKE_CUDA_COMPILER")
  endif()
elseif(FLCE_CUDA STREQUAL "ON")
  message(FATAL_ERROR "FLCE_CUDA cannot be ON in a sanitizer or cross build; leave it at AUTO")
endif()
if(NOT FLCE_HAS_CUDA)
  message(STATUS "CUDA part: not built")
  return()
endif()

# Newest last: its PTX serves cards newer than all of them, that of 8.0 the ones between.
set(flce_cuda_all "80;86-real;89-real;90-real;100-real;120")
if(FLCE_CUDA_ARCHITECTURES STREQUAL "all")
  set(FLCE_CUDA_ARCHITECTURES_USED ${flce_cuda_all})
else()
  set(FLCE_CUDA_ARCHITECTURES_USED ${FLCE_CUDA_ARCHITECTURES})
endif()
message(STATUS "CUDA part: nvcc ${CMAKE_CUDA_COMPILER_VERSION}, ${FLCE_CUDA_ARCHITECTURES_USED}")
