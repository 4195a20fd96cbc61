// SPDX-License-Identifier: Apache-2.0
// Environment variables of the library as a user of the command line meets them.
#include <stdlib.h>

#include "cli_folder.hpp"

namespace flce::test {
namespace {

class CliEnvironment : public Folder {
 protected:
  void set(const char* name, const char* value) { ::setenv(name, value, 1); }
  ~CliEnvironment() override {
    ::unsetenv("FLCE_NUM_THREADS");
    ::unsetenv("FLCE_ISA");
  }
};

TEST_F(CliEnvironment, WrongNumbersOfThreadsAreRefused) {
  for (const char* value : {"0", "-2", "1025", "many", "2.5", "3 "}) {
    set("FLCE_NUM_THREADS", value);
    const std::string said = std::string("FLCE_NUM_THREADS is '") + value + "'";
    for (const char* command : {"verify 'n7_h3_v5 f32 mean'", "plan 'n7_h3_v5 f32 mean'",
                                "bench --tokens 8 --hidden 4 --vocab 9"}) {
      expect_refused(command, {said, "it must be a whole number from 1 to 1024"});
    }
  }
}

TEST_F(CliEnvironment, AnyNumberOfThreadsVerifies) {
  for (const char* value : {"", "1", "2", "7"}) {
    set("FLCE_NUM_THREADS", value);
    fine("verify 'n37_h9_v205 bf16 mean'");
  }
}

TEST_F(CliEnvironment, WrongInstructionSetsAreRefused) {
  set("FLCE_ISA", "sse9");
  expect_refused("verify 'n7_h3_v5 f32 mean'", {"FLCE_ISA is 'sse9'", "portable, avx2"});
  set("FLCE_ISA", "portable");
  fine("verify 'n7_h3_v5 f32 mean'");
}

}  // namespace
}  // namespace flce::test
