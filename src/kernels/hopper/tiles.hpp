// SPDX-License-Identifier: Apache-2.0
// Tile, cluster, schedule, raster and swizzle of each product: found by measuring (H200, bf16;
// docs/kernels/hopper.md has the figures of what lost).
#pragma once

#include "kernels/hopper/product.cuh"

namespace flce::cuda::hopper {

using ExponentialsShape = Shape<128, 192, 2, 1, Schedule::kPingpong, Raster::kAlongCols, 4>;
using GradWeightShape = Shape<128, 192, 1, 2, Schedule::kPingpong, Raster::kAlongRows, 1>;

// grad_hidden is small and its sums are long: what counts is how evenly its tiles fill the card.
using GradHiddenShape = Shape<256, 128, 2, 1, Schedule::kCooperative, Raster::kAlongRows, 1>;
using GradHiddenNarrowShape = Shape<128, 192, 2, 1, Schedule::kPingpong, Raster::kAlongRows, 2>;

// Elements of the output that the busiest multiprocessor makes.
template <typename Shape>
long busiest(int rows, int cols, int num_sms) {
  const long tiles =
      (rows + Shape::kRows - 1L) / Shape::kRows * ((cols + Shape::kCols - 1L) / Shape::kCols);
  return (tiles + num_sms - 1) / num_sms * Shape::kRows * Shape::kCols;
}

}  // namespace flce::cuda::hopper
