// SPDX-License-Identifier: Apache-2.0
// The tiles of the products, in plain numbers: the planner counts by them what a slab costs, and
// what the statistics of tiles take. tiles.hpp makes the products of them.
#pragma once

namespace flce::cuda::hopper {

struct TileSize {
  int rows, cols;
};
inline constexpr TileSize kExponentialsTile{128, 192};
inline constexpr TileSize kGradHiddenTile{256, 128};
inline constexpr TileSize kGradHiddenNarrowTile{128, 192};
inline constexpr TileSize kSumGradHiddenTile{128, 192};
inline constexpr TileSize kGradWeightTile{128, 192};  // of H x V

// Elements of an output that the busiest of so many multiprocessors makes.
constexpr long busiest(const TileSize& tile, long rows, long cols, int num_sms) {
  const long tiles = (rows + tile.rows - 1) / tile.rows * ((cols + tile.cols - 1) / tile.cols);
  return (tiles + num_sms - 1) / num_sms * tile.rows * tile.cols;
}

}  // namespace flce::cuda::hopper
