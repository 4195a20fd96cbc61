# SPDX-License-Identifier: Apache-2.0
# What the Python wheel carries beside its modules (pyproject.toml): lib/ with libflce.so.0 and,
# where they were built, libflce_cuda.so and libflce_jax.so, and bin/flce. They find each other as
# in any installed tree, but a wheel holds no symbolic links, so the library has the name that its
# users ask for.
add_custom_target(flce_python DEPENDS flce $<TARGET_NAME_IF_EXISTS:flce_cuda_run>
  $<TARGET_NAME_IF_EXISTS:flce_jax> $<TARGET_NAME_IF_EXISTS:flce_cli>)
install(FILES $<TARGET_FILE:flce> DESTINATION lib RENAME $<TARGET_SONAME_FILE_NAME:flce>
  COMPONENT python EXCLUDE_FROM_ALL)
foreach(target flce_cuda_run flce_jax)
  if(TARGET ${target})
    install(FILES $<TARGET_FILE:${target}> DESTINATION lib COMPONENT python EXCLUDE_FROM_ALL)
  endif()
endforeach()
if(TARGET flce_cli)
  # Its build folder has the same layout (CMAKE_BUILD_RPATH_USE_ORIGIN), so it is copied as it is.
  install(PROGRAMS $<TARGET_FILE:flce_cli> DESTINATION bin COMPONENT python EXCLUDE_FROM_ALL)
endif()
