# SPDX-License-Identifier: Apache-2.0
# What the Python wheel carries beside its modules (pyproject.toml): lib/ with libflce.so.0 and, if
# it was built, libflce_cuda.so, and bin/flce. They find each other as in any installed tree, but a
# wheel holds no symbolic links, so the library has the name that its users ask for.
add_custom_target(flce_python DEPENDS flce $<TARGET_NAME_IF_EXISTS:flce_cuda_run>
  $<TARGET_NAME_IF_EXISTS:flce_cli>)
install(FILES $<TARGET_FILE:flce> DESTINATION lib RENAME $<TARGET_SONAME_FILE_NAME:flce>
  COMPONENT python EXCLUDE_FROM_ALL)
if(TARGET flce_cuda_run)
  install(FILES $<TARGET_FILE:flce_cuda_run> DESTINATION lib COMPONENT python EXCLUDE_FROM_ALL)
endif()
if(TARGET flce_cli)
  # Its build folder has the same layout (CMAKE_BUILD_RPATH_USE_ORIGIN), so it is copied as it is.
  install(PROGRAMS $<TARGET_FILE:flce_cli> DESTINATION bin COMPONENT python EXCLUDE_FROM_ALL)
endif()
