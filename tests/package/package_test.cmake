# SPDX-License-Identifier: Apache-2.0
# Run by ctest: installs, moves the prefix, builds and runs the consumer with CMake and pkg-config.
cmake_minimum_required(VERSION 3.25)

function(run what)
  execute_process(COMMAND ${ARGN} RESULT_VARIABLE status OUTPUT_VARIABLE out ERROR_VARIABLE out)
  if(NOT status EQUAL 0)
    message(FATAL_ERROR "${what} failed (${status}):\n${out}")
  endif()
  message(STATUS "${what}: fine")
  set(out "${out}" PARENT_SCOPE)
endfunction()

function(expect_number what)
  if(NOT out MATCHES "1\\.62693")
    message(FATAL_ERROR "${what}: expected a loss of 1.62693, got:\n${out}")
  endif()
endfunction()

file(REMOVE_RECURSE ${work})
run("install" ${CMAKE_COMMAND} --install ${build} --prefix ${work}/first)
set(prefix ${work}/moved)
file(RENAME ${work}/first ${prefix})

file(GLOB_RECURSE files RELATIVE ${prefix} ${prefix}/*)
foreach(wanted "include/flce/flce\\.h" "include/flce/flce\\.hpp" "libflce\\.so\\.${version}"
    "cmake/flce/flceConfig\\.cmake" "pkgconfig/flce\\.pc" "LICENSE")
  if(NOT files MATCHES ${wanted})
    message(FATAL_ERROR "'${wanted}' was not installed; there is: ${files}")
  endif()
endforeach()

# No trace of where it was built, and no package that a consumer would have to find.
foreach(file IN LISTS files)
  if(file MATCHES "\\.(cmake|pc|h|hpp)$")
    file(READ ${prefix}/${file} text)
    if(text MATCHES "${build}|find_dependency|fmt::")
      message(FATAL_ERROR "${file} names the build folder or a package: ${CMAKE_MATCH_0}")
    endif()
  endif()
endforeach()

set(flags "")
if(sanitize)
  set(flags -fsanitize=${sanitize})
endif()
run("configure the consumer" ${CMAKE_COMMAND} -S ${consumer} -B ${work}/consumer -G ${generator}
  -D CMAKE_BUILD_TYPE=Release -D CMAKE_C_COMPILER=${c_compiler}
  -D CMAKE_CXX_COMPILER=${cxx_compiler} -D CMAKE_PREFIX_PATH=${prefix}
  -D CMAKE_C_FLAGS=${flags} -D CMAKE_CXX_FLAGS=${flags} -D CMAKE_DISABLE_FIND_PACKAGE_fmt=ON)
run("build the consumer" ${CMAKE_COMMAND} --build ${work}/consumer)
run("run the C consumer" ${work}/consumer/use_c)
expect_number("the C consumer")
run("run the C++ consumer" ${work}/consumer/use_cpp)
expect_number("the C++ consumer")

# A consumer that asks for a version which this one does not serve is told so.
execute_process(COMMAND ${CMAKE_COMMAND} -S ${consumer} -B ${work}/newer -G ${generator}
  -D CMAKE_C_COMPILER=${c_compiler} -D CMAKE_CXX_COMPILER=${cxx_compiler}
  -D CMAKE_PREFIX_PATH=${prefix} -D wanted_version=99.0
  RESULT_VARIABLE status OUTPUT_QUIET ERROR_QUIET)
if(status EQUAL 0)
  message(FATAL_ERROR "find_package(flce 99.0) succeeded with ${version}")
endif()

if(tools)
  run("run the installed command line" ${prefix}/bin/flce --help)
endif()

find_program(pkg_config pkg-config)
if(pkg_config)
  file(GLOB_RECURSE pc ${prefix}/flce.pc)
  get_filename_component(pc_dir ${pc} DIRECTORY)
  set(ENV{PKG_CONFIG_PATH} ${pc_dir})
  run("pkg-config" ${pkg_config} --cflags --libs flce)
  separate_arguments(pc_flags UNIX_COMMAND "${out}")
  run("pkg-config --variable=libdir" ${pkg_config} --variable=libdir flce)
  string(STRIP "${out}" libdir)
  run("compile with pkg-config" ${c_compiler} -std=c11 ${flags} ${consumer}/use.c
    -o ${work}/use_pc ${pc_flags} -Wl,-rpath,${libdir})
  run("run what pkg-config made" ${work}/use_pc)
  expect_number("pkg-config's consumer")
endif()
