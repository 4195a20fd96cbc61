// SPDX-License-Identifier: Apache-2.0
// Tile (tile_sizes.hpp), cluster, schedule, raster and swizzle of each product: found by measuring
// (H200, bf16; docs/kernels/hopper.md has the figures of what lost).
#pragma once

#include "kernels/hopper/product.cuh"
#include "kernels/hopper/tile_sizes.hpp"

namespace flce::cuda::hopper {

using ExponentialsShape = Shape<kExponentialsTile.rows, kExponentialsTile.cols, 2, 1,
                                Schedule::kPingpong, Raster::kAlongCols, 4>;

// grad_weight is made transposed, H x V: tiles of 192 columns divide a vocabulary with less waste
// than they divide a hidden size.
using GradWeightShape = Shape<kGradWeightTile.rows, kGradWeightTile.cols, 2, 1, Schedule::kPingpong,
                              Raster::kAlongRows, 1>;
using SumGradWeightShape = GradWeightShape;

// grad_hidden is small and its sums are long: what counts is how evenly its tiles fill the card.
using GradHiddenShape = Shape<kGradHiddenTile.rows, kGradHiddenTile.cols, 1, 2,
                              Schedule::kCooperative, Raster::kAlongRows, 2>;
using GradHiddenNarrowShape = Shape<kGradHiddenNarrowTile.rows, kGradHiddenNarrowTile.cols, 2, 1,
                                    Schedule::kPingpong, Raster::kAlongRows, 2>;
using SumGradHiddenShape = Shape<kSumGradHiddenTile.rows, kSumGradHiddenTile.cols, 2, 1,
                                 Schedule::kPingpong, Raster::kAlongRows, 2>;

}  // namespace flce::cuda::hopper
