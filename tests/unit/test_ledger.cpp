// SPDX-License-Identifier: Apache-2.0
// The workspace ledger and the integer helpers under it.
#include <gtest/gtest.h>

#include <algorithm>

#include "core/int_math.hpp"
#include "core/ledger.hpp"
#include "core/ranges.hpp"

namespace flce {
namespace {

SlotPlace place(const Ledger& ledger, Slot slot) {
  return ledger.layout().places[static_cast<int>(slot)];
}

TEST(Ledger, SlotsThatLiveTogetherNeverOverlap) {
  Ledger ledger(Pass::kRun);
  ledger.book(Slot::kRowState, 100);
  ledger.book(Slot::kHiddenPacked, 1000, {Stage::kPartial, Stage::kPartial});
  ledger.book(Slot::kTileStats, 200, {Stage::kPartial, Stage::kCombine});
  ledger.book(Slot::kGradientPacked, 900, {Stage::kGradHidden, Stage::kGradHidden});
  EXPECT_EQ(place(ledger, Slot::kTileStats).offset, 128u) << "outlasts kHiddenPacked";
  EXPECT_EQ(place(ledger, Slot::kHiddenPacked).offset, 384u);
  EXPECT_EQ(place(ledger, Slot::kGradientPacked).offset, 128u) << "shares bytes with partial";
  EXPECT_EQ(ledger.layout().workspace_bytes, 1384u);
}

// Whatever the order of the bookings, nothing lies above a gap; so a larger slot never takes less.
TEST(Ledger, TheFullestStageIsWhatIsTaken) {
  for (const std::uint64_t stats : {64u, 640u, 6400u}) {
    Ledger ledger(Pass::kRun);
    ledger.book(Slot::kTileStats, stats, {Stage::kPartial, Stage::kCombine});
    ledger.book(Slot::kHiddenByToken, 1280, {Stage::kGradWeight, Stage::kGradWeight});
    ledger.book(Slot::kTargetSums, 64, {Stage::kGradHidden, Stage::kGradWeight});
    ledger.book(Slot::kThreadScratch, 128);
    EXPECT_EQ(ledger.layout().workspace_bytes, 128 + std::max<std::uint64_t>(stats, 1280 + 64));
  }
}

TEST(Ledger, NothingIsBookedForZeroBytes) {
  Ledger ledger(Pass::kRun);
  ledger.book(Slot::kTopk, 0);
  EXPECT_EQ(ledger.layout().workspace_bytes, 0u);
}

TEST(Ledger, SavedSlotsGetTheirOwnBufferInASplitPass) {
  Ledger split(Pass::kForwardBackward);
  split.save(Slot::kRowState, 70);
  split.save(Slot::kKept, 30);
  split.book(Slot::kTileStats, 10);
  EXPECT_EQ(split.layout().saved_bytes, 158u);
  EXPECT_EQ(split.layout().workspace_bytes, 10u);
  EXPECT_TRUE(place(split, Slot::kKept).saved);

  Ledger whole(Pass::kRun);
  whole.save(Slot::kRowState, 70);
  whole.book(Slot::kTileStats, 10);
  EXPECT_EQ(whole.layout().saved_bytes, 0u);
  EXPECT_EQ(whole.layout().workspace_bytes, 138u);
}

TEST(Ledger, HugeSizesSaturate) {
  Ledger ledger(Pass::kRun);
  ledger.book(Slot::kKept, bytes_of(1'000'000'000'000, 1'000'000'000'000, 8));
  ledger.book(Slot::kRowState, 100);
  EXPECT_EQ(ledger.layout().workspace_bytes, kSaturated);
}

TEST(IntMath, RoundsAndSaturates) {
  EXPECT_EQ(ceil_div(0, 4), 0);
  EXPECT_EQ(ceil_div(9, 4), 3);
  EXPECT_EQ(round_up(9, 4), 12);
  EXPECT_EQ(round_up_bytes(kSaturated - 3, 64), kSaturated);
  EXPECT_EQ(saturating_mul(std::uint64_t{1} << 40, std::uint64_t{1} << 40), kSaturated);
  EXPECT_EQ(bytes_of(-1, 5, 4), 0u);
  EXPECT_EQ(next_pow2(1), 1);
  EXPECT_EQ(next_pow2(129), 256);
}

TEST(Pieces, CoverTheWholeAndNoMore) {
  const Pieces pieces(10, 4);
  ASSERT_EQ(pieces.count(), 3);
  EXPECT_EQ(pieces[2], (Range{8, 10}));
  EXPECT_TRUE(pieces.is_first(0) && pieces.is_last(2) && !pieces.is_last(1));
  const Pieces none(0, 4);
  ASSERT_EQ(none.count(), 1) << "an empty total has one empty piece, which clears the outputs";
  EXPECT_EQ(none[0].size(), 0);
}

}  // namespace
}  // namespace flce
