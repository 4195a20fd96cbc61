# SPDX-License-Identifier: Apache-2.0
# What an installed FLCE is: headers, libflce.so, libflce_cuda.so if it was built, the command line,
# a CMake package (flce::flce) and flce.pc. Both find themselves relative to their own place, so
# that the tree may be moved.
option(FLCE_INSTALL "Install rules" ${PROJECT_IS_TOP_LEVEL})

# Only what the public headers declare leaves the library: templates of the standard library that
# the inner rooms instantiate stay inside.
set(flce_symbols ${PROJECT_SOURCE_DIR}/cmake/libflce.map)
target_link_options(flce PRIVATE "LINKER:--version-script=${flce_symbols}")
set_property(TARGET flce APPEND PROPERTY LINK_DEPENDS ${flce_symbols})

if(NOT FLCE_INSTALL)
  return()
endif()
include(CMakePackageConfigHelpers)
set(flce_cmake_dir ${CMAKE_INSTALL_LIBDIR}/cmake/flce)

install(TARGETS flce EXPORT flceTargets
  LIBRARY DESTINATION ${CMAKE_INSTALL_LIBDIR}
  INCLUDES DESTINATION ${CMAKE_INSTALL_INCLUDEDIR})
if(TARGET flce_cuda_run)  # libflce.so looks for it beside itself
  install(TARGETS flce_cuda_run LIBRARY DESTINATION ${CMAKE_INSTALL_LIBDIR})
endif()
install(DIRECTORY ${PROJECT_SOURCE_DIR}/include/flce DESTINATION ${CMAKE_INSTALL_INCLUDEDIR}
  FILES_MATCHING PATTERN "*.h" PATTERN "*.hpp")
install(FILES ${PROJECT_SOURCE_DIR}/LICENSE ${PROJECT_SOURCE_DIR}/THIRD_PARTY.txt
  DESTINATION ${CMAKE_INSTALL_DOCDIR})

if(TARGET flce_cli)
  file(RELATIVE_PATH flce_lib_from_bin ${CMAKE_INSTALL_FULL_BINDIR} ${CMAKE_INSTALL_FULL_LIBDIR})
  set_target_properties(flce_cli PROPERTIES INSTALL_RPATH "$ORIGIN/${flce_lib_from_bin}")
  install(TARGETS flce_cli RUNTIME DESTINATION ${CMAKE_INSTALL_BINDIR})
endif()

install(EXPORT flceTargets NAMESPACE flce:: DESTINATION ${flce_cmake_dir})
configure_package_config_file(${PROJECT_SOURCE_DIR}/cmake/flceConfig.cmake.in
  ${PROJECT_BINARY_DIR}/cmake/flceConfig.cmake INSTALL_DESTINATION ${flce_cmake_dir}
  NO_SET_AND_CHECK_MACRO)
write_basic_package_version_file(${PROJECT_BINARY_DIR}/cmake/flceConfigVersion.cmake
  COMPATIBILITY SameMinorVersion)
install(FILES ${PROJECT_BINARY_DIR}/cmake/flceConfig.cmake
  ${PROJECT_BINARY_DIR}/cmake/flceConfigVersion.cmake DESTINATION ${flce_cmake_dir})

# A folder given as an absolute path (some distributions do) stays absolute.
set(flce_pc_dir ${CMAKE_INSTALL_LIBDIR}/pkgconfig)
if(IS_ABSOLUTE ${CMAKE_INSTALL_LIBDIR})
  set(flce_pc_prefix ${CMAKE_INSTALL_PREFIX})
  set(flce_pc_libdir ${CMAKE_INSTALL_LIBDIR})
else()
  file(RELATIVE_PATH flce_prefix_from_pc /${flce_pc_dir} /)
  string(REGEX REPLACE "/$" "" flce_prefix_from_pc "${flce_prefix_from_pc}")
  set(flce_pc_prefix "\${pcfiledir}/${flce_prefix_from_pc}")
  set(flce_pc_libdir "\${prefix}/${CMAKE_INSTALL_LIBDIR}")
endif()
if(IS_ABSOLUTE ${CMAKE_INSTALL_INCLUDEDIR})
  set(flce_pc_includedir ${CMAKE_INSTALL_INCLUDEDIR})
else()
  set(flce_pc_includedir "\${prefix}/${CMAKE_INSTALL_INCLUDEDIR}")
endif()
configure_file(${PROJECT_SOURCE_DIR}/cmake/flce.pc.in ${PROJECT_BINARY_DIR}/cmake/flce.pc @ONLY)
install(FILES ${PROJECT_BINARY_DIR}/cmake/flce.pc DESTINATION ${flce_pc_dir})

include(${PROJECT_SOURCE_DIR}/cmake/python.cmake)
