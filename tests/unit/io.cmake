# SPDX-License-Identifier: Apache-2.0
# Tests of tools/io, and the corpora of the fuzz targets run without libFuzzer.
flce_add_test(test_io
  SOURCES test_io_config.cpp test_io_npy.cpp test_io_python.cpp test_io_safetensors.cpp
    test_io_tensor.cpp test_io_write.cpp
  LIBRARIES flce_io flce_internal SANITIZERS)

foreach(name npy safetensors config problem_text bytes)
  add_executable(replay_${name}
    ${PROJECT_SOURCE_DIR}/fuzz/replay.cpp ${PROJECT_SOURCE_DIR}/fuzz/fuzz_${name}.cpp)
  target_include_directories(replay_${name} PRIVATE ${PROJECT_SOURCE_DIR}/fuzz)
  target_link_libraries(replay_${name} PRIVATE flce_options flce_io flce_internal)
  add_test(NAME fuzz_corpus_${name}
    COMMAND replay_${name} ${PROJECT_SOURCE_DIR}/fuzz/corpus/${name})
  set_tests_properties(fuzz_corpus_${name} PROPERTIES LABELS "unit;san" TIMEOUT 600)
endforeach()
