# SPDX-License-Identifier: Apache-2.0
# flce_fmt: fmt as a static library inside ours (cmake/fmt.cpp says why). A fmt of another major
# version, whose definitions are cut differently, is used header-only.
find_package(fmt REQUIRED)
if(fmt_VERSION VERSION_GREATER_EQUAL 9 AND fmt_VERSION VERSION_LESS 10)
  add_library(flce_fmt STATIC ${PROJECT_SOURCE_DIR}/cmake/fmt.cpp)
  get_target_property(fmt_includes fmt::fmt INTERFACE_INCLUDE_DIRECTORIES)
  target_include_directories(flce_fmt SYSTEM PUBLIC ${fmt_includes})
else()
  add_library(flce_fmt INTERFACE)
  target_link_libraries(flce_fmt INTERFACE fmt::fmt-header-only)
endif()
