// SPDX-License-Identifier: Apache-2.0
// The tiles of the products, in plain numbers: the planner counts by them what a slab costs, and
// what the statistics of tiles take. tiles.hpp makes the products of them.
#pragma once

namespace flce::cuda::hopper {

struct TileSize {
  int rows, cols;
  int cluster_rows, cluster_cols;  // tiles of a cluster
};
inline constexpr TileSize kExponentialsTile{128, 192, 2, 1};
// Of the gradients, which are made transposed: H x N and H x V.
inline constexpr TileSize kGradientTile{128, 192, 1, 2};
inline constexpr TileSize kWideGradientTile{128, 256, 1, 2};
inline constexpr TileSize kSlabWeightTile{128, 192, 2, 1};

constexpr long tiles_along(long size, int tile, int multiple) {
  const long tiles = (size + tile - 1) / tile;
  return (tiles + multiple - 1) / multiple * multiple;
}

// Tiles that the busiest of so many multiprocessors makes. They are counted in whole clusters and
// whole squares of the swizzle: a tile beyond the matrix takes as long as any other.
constexpr long waves_of(const TileSize& tile, long rows, long cols, int num_sms, int swizzle = 1) {
  const long tiles = tiles_along(rows, tile.rows, tile.cluster_rows * swizzle) *
                     tiles_along(cols, tile.cols, tile.cluster_cols * swizzle);
  return (tiles + num_sms - 1) / num_sms;
}

// Elements of an output that the busiest multiprocessor makes.
constexpr long busiest(const TileSize& tile, long rows, long cols, int num_sms) {
  return waves_of(tile, rows, cols, num_sms) * tile.rows * tile.cols;
}

// The largest swizzle up to `most` that costs no tile more than none.
constexpr int swizzle_of(const TileSize& tile, long rows, long cols, int num_sms, int most) {
  int swizzle = most;
  while (swizzle > 1 &&
         waves_of(tile, rows, cols, num_sms, swizzle) > waves_of(tile, rows, cols, num_sms)) {
    swizzle /= 2;
  }
  return swizzle;
}

// grad_hidden is small and its sums are long: what counts is how evenly its tiles fill the card.
constexpr bool is_wide_better(long hidden, long tokens, int num_sms) {
  return busiest(kWideGradientTile, hidden, tokens, num_sms) <=
         busiest(kGradientTile, hidden, tokens, num_sms);
}

// grad_weight of a slab, all of whose columns are made at once: clusters along the hidden size
// waste nothing where the number of tiles along the slab is odd.
constexpr bool is_slab_tile_better(long hidden, long cols, int num_sms) {
  return 2 * tiles_along(cols, kSlabWeightTile.cols, 1) <= num_sms &&
         busiest(kSlabWeightTile, hidden, cols, num_sms) <
             busiest(kGradientTile, hidden, cols, num_sms);
}

}  // namespace flce::cuda::hopper
