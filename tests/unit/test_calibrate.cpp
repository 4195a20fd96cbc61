// SPDX-License-Identifier: Apache-2.0
// What the processor does at best: plausible figures, and clear words for requests that make none.
#include <gtest/gtest.h>

#include "flce/calibrate.hpp"
#include "flce/flce.hpp"

namespace flce::cpu {
namespace {

TEST(Calibrate, FiguresArePlausible) {
  const CpuFigures f32 = measure_cpu(Dtype::kF32);
  EXPECT_GT(f32.matmul_flops, 1e8);  // also under a sanitizer, on one slow thread
  EXPECT_LT(f32.matmul_flops, 1e15);
  EXPECT_GT(f32.bandwidth_bytes, 1e7);
  EXPECT_LT(f32.bandwidth_bytes, 1e14);
}

TEST(Calibrate, ABurstIsABurstOfAnyTypeAndAnyThreads) {
  for (const Dtype dtype : {Dtype::kF64, Dtype::kF32, Dtype::kBF16, Dtype::kF16}) {
    EXPECT_GT(measure_matmul_flops(dtype, 1), 1e7) << name_of(dtype);
  }
  EXPECT_GT(measure_matmul_flops(Dtype::kF32, 3), 1e7);
}

TEST(Calibrate, RefusesWhatMakesNoSense) {
  EXPECT_THROW(measure_cpu(Dtype::kI64), Error);
  EXPECT_THROW(measure_cpu(Dtype::kNone), Error);
  EXPECT_THROW(measure_matmul_flops(Dtype::kF32, -1), Error);
  EXPECT_THROW(measure_matmul_flops(Dtype::kF32, 5000), Error);
}

}  // namespace
}  // namespace flce::cpu
