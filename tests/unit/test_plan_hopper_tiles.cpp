// SPDX-License-Identifier: Apache-2.0
// How tiles fill a card: numbers that the planner and the launches of route hopper share.
#include <gtest/gtest.h>

#include "kernels/hopper/tile_sizes.hpp"

namespace flce::cuda::hopper {
namespace {

constexpr int kSms = 132;

TEST(HopperTiles, AreCountedInWholeClusters) {
  // 32 x 33 tiles are 8 for each of 132; a 34th column of tiles makes them 9.
  EXPECT_EQ(waves_of(kSlabWeightTile, 4096, 6336, kSms), 8);
  EXPECT_EQ(waves_of(kGradientTile, 4096, 6336, kSms), 9);
  EXPECT_EQ(waves_of(kGradientTile, 4096, 6144, kSms), 8);
  EXPECT_EQ(waves_of(kExponentialsTile, 1, 1, kSms), 1);
  EXPECT_EQ(busiest(kWideGradientTile, 4096, 4096, kSms), 4 * 128 * 256);
}

TEST(HopperTiles, ASwizzleCostsNoTile) {
  EXPECT_EQ(swizzle_of(kExponentialsTile, 4096, 128256, kSms, 4), 4);
  // 33 columns of tiles would be 36.
  EXPECT_EQ(swizzle_of(kExponentialsTile, 16384, 6336, kSms, 4), 1);
  for (long rows = 128; rows <= 16384; rows += 640) {
    for (long cols = 192; cols <= 24576; cols += 192) {
      const int swizzle = swizzle_of(kExponentialsTile, rows, cols, kSms, 4);
      EXPECT_TRUE(swizzle == 1 || swizzle == 2 || swizzle == 4) << swizzle;
      EXPECT_EQ(waves_of(kExponentialsTile, rows, cols, kSms, swizzle),
                waves_of(kExponentialsTile, rows, cols, kSms))
          << rows << " x " << cols;
    }
  }
}

TEST(HopperTiles, ASlabOfOddWidthHasClustersAlongTheHiddenSize) {
  EXPECT_TRUE(is_slab_tile_better(4096, 6336, kSms));
  EXPECT_FALSE(is_slab_tile_better(4096, 12672, kSms));   // as many tiles either way
  EXPECT_FALSE(is_slab_tile_better(2304, 21120, kSms));   // more than a wave's columns
  EXPECT_FALSE(is_slab_tile_better(4096, 128256, kSms));  // the whole vocabulary
}

}  // namespace
}  // namespace flce::cuda::hopper
