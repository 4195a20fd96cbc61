// SPDX-License-Identifier: Apache-2.0
// Tile (tile_sizes.hpp), cluster, schedule, raster and swizzle of each product: found by measuring
// (H200, bf16; docs/kernels/hopper.md has the figures of what lost).
#pragma once

#include "kernels/hopper/product.cuh"
#include "kernels/hopper/tile_sizes.hpp"

namespace flce::cuda::hopper {

using ExponentialsShape = Shape<kExponentialsTile, Schedule::kPingpong, Raster::kAlongCols, 4>;

// Both gradients are made transposed: tiles of 192 columns divide a vocabulary with less waste than
// they divide a hidden size.
using GradientShape = Shape<kGradientTile, Schedule::kPingpong, Raster::kAlongRows, 1>;

// Of grad_hidden, where it is better (is_wide_better).
using WideGradientShape = Shape<kWideGradientTile, Schedule::kCooperative, Raster::kAlongRows, 2>;

// Of a slab's grad_weight, where it is better (is_slab_tile_better).
using SlabWeightShape = Shape<kSlabWeightTile, Schedule::kPingpong, Raster::kAlongCols, 1>;

}  // namespace flce::cuda::hopper
