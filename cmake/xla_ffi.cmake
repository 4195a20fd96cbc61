# SPDX-License-Identifier: Apache-2.0
# FLCE_HAS_JAX: whether libflce_jax.so, what XLA calls for flce.jax, is built (bindings/python). It
# needs the headers of XLA's foreign function interface, FLCE_XLA_FFI_INCLUDE_DIR: those that
# FLCE_XLA_FFI_DIR names, in the cache or else in the environment, or those that ./dev has fetched
# (scripts/dev/xla_ffi.sh). Nothing is fetched here, and without headers all else is built as usual.
#
# A JAX takes a library whose headers have its own version of that interface or an older one: JAX
# refuses a newer one by number, and promises an older one for a year. What ./dev fetches is 0.1,
# which every JAX from 0.5.0 to 0.10.2 takes.
set(FLCE_XLA_FFI_DIR "" CACHE PATH
  "The folder with xla/ffi/api/ffi.h, jax.ffi.include_dir() (default: what ./dev has fetched)")
set(FLCE_HAS_JAX OFF)
if(CMAKE_CROSSCOMPILING OR FLCE_SANITIZE)
  return()
endif()

set(flce_xla_named "${FLCE_XLA_FFI_DIR}")
if(NOT flce_xla_named)
  set(flce_xla_named "$ENV{FLCE_XLA_FFI_DIR}")
endif()
set(FLCE_XLA_FFI_INCLUDE_DIR ${PROJECT_SOURCE_DIR}/build/third_party/xla-ffi-0.5.3/include)
if(flce_xla_named)
  get_filename_component(FLCE_XLA_FFI_INCLUDE_DIR "${flce_xla_named}" ABSOLUTE
    BASE_DIR ${PROJECT_SOURCE_DIR})
endif()
if(NOT EXISTS ${FLCE_XLA_FFI_INCLUDE_DIR}/xla/ffi/api/ffi.h)
  if(flce_xla_named)
    message(FATAL_ERROR "FLCE_XLA_FFI_DIR is '${flce_xla_named}', but there is no "
      "${FLCE_XLA_FFI_INCLUDE_DIR}/xla/ffi/api/ffi.h; name what jax.ffi.include_dir() says, or "
      "leave FLCE_XLA_FFI_DIR empty")
  endif()
  message(STATUS "JAX part: not built, XLA's headers are not here (./dev wheel fetches them, "
    "FLCE_XLA_FFI_DIR names others)")
  return()
endif()

file(STRINGS ${FLCE_XLA_FFI_INCLUDE_DIR}/xla/ffi/api/c_api.h flce_xla_numbers
  REGEX "#define XLA_FFI_API_(MAJOR|MINOR) ")
string(REGEX REPLACE "[^;]*XLA_FFI_API_[A-Z]+ +([0-9]+)[^;]*" "\\1" flce_xla_numbers
  "${flce_xla_numbers}")
list(JOIN flce_xla_numbers "." flce_xla_version)
set(FLCE_HAS_JAX ON)
message(STATUS "JAX part: XLA FFI ${flce_xla_version} in ${FLCE_XLA_FFI_INCLUDE_DIR}")
