// SPDX-License-Identifier: Apache-2.0
// The tiles of the products and the order in which a card takes them, in plain numbers: the planner
// counts by them what a slab costs, and what the statistics of tiles take. tiles.hpp makes the
// products of them. Gradients are made transposed: H x V and H x N.
#pragma once

namespace flce::cuda::hopper {

struct TileSize {
  int rows, cols;
};
inline constexpr TileSize kTile{128, 192};
// Of grad_hidden, where it fills the card better (is_wide_better).
inline constexpr TileSize kWideTile{128, 256};
// A cluster is two tiles, one below the other, which read each column of B together.
inline constexpr int kClusterRows = 2;

constexpr long tiles_along(long size, int tile, int multiple) {
  const long tiles = (size + tile - 1) / tile;
  return (tiles + multiple - 1) / multiple * multiple;
}

// How a product's tiles are taken: in groups of `group` clusters beside each other, from one end of
// the matrix to the other.
struct Order {
  bool is_along_cols = false;  // groups of rows, taken column by column; else of columns
  int log_group = 0;           // base 2
  long tiles = 0;              // of whole groups: one beyond the matrix takes as long as any other
};

// Rows and columns that all multiprocessors hold parts of at one time. They are read from device
// memory, for tiles of a whole vocabulary or of thousands of tokens push each other out of the L2
// cache: the squarer, the less is read, and the less is read, the higher the clock of a card at its
// power limit.
constexpr double held_by(const TileSize& tile, double row_tiles, double col_tiles) {
  return row_tiles * tile.rows + col_tiles * tile.cols;
}

// What 80000 rows and columns held take as long as the multiply-adds: measured, 1.2 % for each 1000
// (docs/kernels/hopper.md).
inline constexpr double kHeldOfWork = 80000.0;

constexpr Order order_of(const TileSize& tile, long rows, long cols, int num_sms) {
  const long col_tiles = tiles_along(cols, tile.cols, 1);
  const auto least_of = [](double a, double b) { return a < b ? a : b; };
  const double sms = num_sms;
  const long all_rows = tiles_along(rows, tile.rows, kClusterRows);
  // Columns one by one.
  Order best{false, 0, all_rows * col_tiles};
  const double held_rows = least_of(static_cast<double>(all_rows), sms);
  double least =
      static_cast<double>(best.tiles) * (kHeldOfWork + held_by(tile, held_rows, sms / held_rows));
  for (int log_group = 0; log_group <= 3; ++log_group) {
    const int group = kClusterRows << log_group;
    const Order order{true, log_group, tiles_along(rows, tile.rows, group) * col_tiles};
    const double held_cols = least_of(static_cast<double>(col_tiles), sms / group);
    const double work = static_cast<double>(order.tiles) *
                        (kHeldOfWork + held_by(tile, sms / held_cols, held_cols));
    if (work >= least) continue;
    least = work;
    best = order;
  }
  return best;
}

// Tiles that the busiest of so many multiprocessors makes.
constexpr long waves_of(const TileSize& tile, long rows, long cols, int num_sms) {
  return (order_of(tile, rows, cols, num_sms).tiles + num_sms - 1) / num_sms;
}

// Elements of an output that the busiest multiprocessor makes.
constexpr long busiest(const TileSize& tile, long rows, long cols, int num_sms) {
  return waves_of(tile, rows, cols, num_sms) * tile.rows * tile.cols;
}

// grad_hidden is small and its sums are long: what counts is how evenly its tiles fill the card.
constexpr bool is_wide_better(long hidden, long tokens, int num_sms) {
  return busiest(kWideTile, hidden, tokens, num_sms) <= busiest(kTile, hidden, tokens, num_sms);
}

constexpr const TileSize& hidden_tile(long hidden, long tokens, int num_sms) {
  return is_wide_better(hidden, tokens, num_sms) ? kWideTile : kTile;
}

// How many parts the sums of grad_hidden's wide tiles are made in, side by side; 1: whole. A part
// costs a tile of f32 written and read, for which its sum must be long and the gain worth it.
inline constexpr int kMostParts = 8;
inline constexpr long kLeastPartCols = 4096;

constexpr long parted_tiles(long hidden, long tokens) {
  return tiles_along(hidden, kWideTile.rows, kClusterRows) * tiles_along(tokens, kWideTile.cols, 1);
}

constexpr int hidden_parts(long hidden, long tokens, long cols, int num_sms) {
  const long tiles = parted_tiles(hidden, tokens);
  long least = busiest(hidden_tile(hidden, tokens, num_sms), hidden, tokens, num_sms) * 9 / 10;
  int best = 1;
  for (int parts = 2; parts <= kMostParts && cols / parts >= kLeastPartCols; ++parts) {
    const long waves = (tiles * parts + num_sms - 1) / num_sms;
    const long elements = waves * kWideTile.rows * kWideTile.cols / parts;
    if (elements >= least) continue;
    least = elements;
    best = parts;
  }
  return best;
}

// What the parts leave for each other: f32 sums of each tile, and a flag for each of the two groups
// of warps that make it, to whole lines.
constexpr long parts_bytes(long hidden, long tokens) {
  constexpr long kLine = 128;
  const long tiles = parted_tiles(hidden, tokens);
  return tiles * kWideTile.rows * kWideTile.cols * 4 + (tiles * 2 * 4 + kLine - 1) / kLine * kLine;
}

// What label smoothing takes (smoothing.cu): slices that its sums are made in side by side, and
// rows behind a chunk's in E and in the scaled hidden states, whose products are its part of
// grad_weight: bf16 pieces of w_j and of -sum_i q_i x_i, exact to 2^-24.
inline constexpr int kSumSlices = 64;
inline constexpr int kSmoothingRows = 8;

}  // namespace flce::cuda::hopper
