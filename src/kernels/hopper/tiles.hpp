// SPDX-License-Identifier: Apache-2.0
// Tile (tile_sizes.hpp) and schedule of each product: found by measuring (H200, bf16;
// docs/kernels/hopper.md has the figures of what lost).
#pragma once

#include "kernels/hopper/product.cuh"
#include "kernels/hopper/tile_sizes.hpp"

namespace flce::cuda::hopper {

using TileShape = Shape<kTile, Schedule::kPingpong>;

// Of grad_hidden, where it is better (is_wide_better).
using WideShape = Shape<kWideTile, Schedule::kCooperative>;

// Of grad_hidden in parts (hidden_parts).
using PartsShape = Shape<kWideTile, Schedule::kCooperative, true>;

}  // namespace flce::cuda::hopper
