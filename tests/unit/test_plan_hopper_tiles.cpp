// SPDX-License-Identifier: Apache-2.0
// How tiles fill a card: numbers that the planner and the launches of route hopper share.
#include <gtest/gtest.h>

#include "kernels/hopper/tile_sizes.hpp"

namespace flce::cuda::hopper {
namespace {

constexpr int kSms = 132;

TEST(HopperTiles, AreCountedInWholeClusters) {
  // 32 x 33 tiles are 8 for each of 132; a 34th column of tiles makes them 9.
  EXPECT_EQ(waves_of(kTile, 4096, 6336, kSms), 8);
  EXPECT_EQ(waves_of(kTile, 4096, 6337, kSms), 9);
  EXPECT_EQ(waves_of(kTile, 1, 1, kSms), 1);
  EXPECT_EQ(order_of(kTile, 1, 1, kSms).tiles, kClusterRows);
  EXPECT_EQ(busiest(kWideTile, 4096, 4096, kSms), 4 * 128 * 256);
}

// What was fastest on a card (docs/kernels/hopper.md).
TEST(HopperTiles, AreTakenInSquares) {
  struct Wanted {
    long rows, cols;
    bool is_along_cols;
    int log_group;
  };
  for (const Wanted& w : {Wanted{4096, 128256, true, 3}, Wanted{4096, 256000, true, 3},
                          Wanted{2304, 256000, false, 0}, Wanted{2304, 21120, false, 0},
                          Wanted{16384, 6336, true, 3}, Wanted{15000, 6336, true, 2}}) {
    const Order order = order_of(kTile, w.rows, w.cols, kSms);
    EXPECT_EQ(order.is_along_cols, w.is_along_cols) << w.rows << " x " << w.cols;
    EXPECT_EQ(order.log_group, w.log_group) << w.rows << " x " << w.cols;
  }
  EXPECT_EQ(order_of(kWideTile, 4096, 4096, kSms).log_group, 3);
}

TEST(HopperTiles, AGroupCostsFewTiles) {
  for (long rows = 1; rows <= 32768; rows += 331) {
    for (long cols = 1; cols <= 262144; cols = cols * 3 + 1) {
      const Order order = order_of(kTile, rows, cols, kSms);
      const long least =
          tiles_along(rows, kTile.rows, kClusterRows) * tiles_along(cols, kTile.cols, 1);
      EXPECT_GE(order.tiles, least);
      EXPECT_LE(order.tiles, least * 5 / 4) << rows << " x " << cols;
      if (order.is_along_cols) {
        EXPECT_EQ(order.tiles % (kClusterRows << order.log_group), 0);
      } else {
        EXPECT_EQ(order.tiles, least);
      }
    }
  }
}

TEST(HopperTiles, FewTilesWithLongSumsAreMadeInParts) {
  // 32 tiles of 128 x 256 for 132 multiprocessors.
  EXPECT_EQ(hidden_parts(2048, 512, 131072, kSms), 4);
  EXPECT_EQ(parts_bytes(2048, 512), 32 * 128 * 256 * 4 + 256);
  EXPECT_EQ(hidden_parts(8, 1, 1 << 20, kSms), 8);
  // Nothing to gain: tiles that fill the card, or sums that are short.
  EXPECT_EQ(hidden_parts(4096, 4096, 128256, kSms), 1);
  EXPECT_EQ(hidden_parts(4096, 1024, 128256, kSms), 1);
  EXPECT_EQ(hidden_parts(2048, 512, 8191, kSms), 1);
  for (long hidden = 8; hidden <= 8192; hidden += 408) {
    for (long tokens = 1; tokens <= 16384; tokens += 301) {
      const int parts = hidden_parts(hidden, tokens, 131072, kSms);
      EXPECT_TRUE(parts >= 1 && parts <= kMostParts) << parts;
      if (parts == 1) continue;
      const long waves = (parted_tiles(hidden, tokens) * parts + kSms - 1) / kSms;
      const long of_parts = waves * kWideTile.rows * kWideTile.cols / parts;
      EXPECT_LT(of_parts, busiest(hidden_tile(hidden, tokens, kSms), hidden, tokens, kSms));
    }
  }
}

}  // namespace
}  // namespace flce::cuda::hopper
