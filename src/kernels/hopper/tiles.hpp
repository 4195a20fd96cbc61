// SPDX-License-Identifier: Apache-2.0
// Tile, cluster, schedule, raster and swizzle of each product: found by measuring (H200, bf16,
// H=4096, V=128256; docs/kernels/hopper.md has the figures of what lost).
#pragma once

#include "kernels/hopper/product.cuh"

namespace flce::cuda::hopper {

using ExponentialsShape = Shape<128, 192, 2, 1, Schedule::kPingpong, Raster::kAlongRows, 2>;
using GradHiddenShape = Shape<256, 128, 2, 1, Schedule::kCooperative, Raster::kAlongRows, 1>;
using GradWeightShape = Shape<128, 192, 1, 2, Schedule::kPingpong, Raster::kAlongRows, 1>;

}  // namespace flce::cuda::hopper
