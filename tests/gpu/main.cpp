// SPDX-License-Identifier: Apache-2.0
// Tests of this folder are about a CUDA device, whatever the environment says.
#include <gtest/gtest.h>

#include <cstdlib>

int main(int argc, char** argv) {
  ::setenv("FLCE_TEST_DEVICE", "cuda", 1);
  testing::InitGoogleTest(&argc, argv);
  return RUN_ALL_TESTS();
}
