// SPDX-License-Identifier: Apache-2.0
// The tiles of the products, in plain numbers: the planner counts by them what a slab costs, and
// what the statistics of tiles take. tiles.hpp makes the products of them.
#pragma once

namespace flce::cuda::hopper {

struct TileSize {
  int rows, cols;
};
inline constexpr TileSize kExponentialsTile{128, 192};
// Of the gradients, which are made transposed: H x N and H x V.
inline constexpr TileSize kGradientTile{128, 192};
inline constexpr TileSize kWideGradientTile{128, 256};

// Elements of an output that the busiest of so many multiprocessors makes.
constexpr long busiest(const TileSize& tile, long rows, long cols, int num_sms) {
  const long tiles = (rows + tile.rows - 1) / tile.rows * ((cols + tile.cols - 1) / tile.cols);
  return (tiles + num_sms - 1) / num_sms * tile.rows * tile.cols;
}

// grad_hidden is small and its sums are long: what counts is how evenly its tiles fill the card.
constexpr bool is_wide_better(long hidden, long tokens, int num_sms) {
  return busiest(kWideGradientTile, hidden, tokens, num_sms) <=
         busiest(kGradientTile, hidden, tokens, num_sms);
}

}  // namespace flce::cuda::hopper
