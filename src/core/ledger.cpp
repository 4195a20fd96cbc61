// SPDX-License-Identifier: Apache-2.0
#include "core/ledger.hpp"

#include "core/check.hpp"
#include "core/int_math.hpp"

namespace flce {

// The lowest aligned offset at which `bytes` touch no slot that lives at the same time. Candidates
// are 0 and the ends of booked slots; there are at most kNumSlots of them.
std::uint64_t Ledger::first_fit(std::uint64_t bytes, Lifetime lifetime) const {
  std::uint64_t offset = 0;
  bool moved = true;
  while (moved) {
    moved = false;
    for (int i = 0; i < kNumSlots; ++i) {
      const SlotPlace& other = places_[i];
      if (other.bytes == 0 || other.saved || !lifetime.overlaps(lifetimes_[i])) continue;
      const std::uint64_t other_end = saturating_add(other.offset, other.bytes);
      if (offset < other_end && saturating_add(offset, bytes) > other.offset) {
        offset = round_up_bytes(other_end, kAlignment);
        moved = offset != kSaturated;
      }
    }
  }
  return offset;
}

void Ledger::book(Slot slot, std::uint64_t bytes, Lifetime lifetime) {
  const int i = static_cast<int>(slot);
  expect(places_[i].bytes == 0);
  if (bytes == 0) return;
  const std::uint64_t offset = first_fit(bytes, lifetime);
  places_[i] = {offset, bytes, false};
  lifetimes_[i] = lifetime;
  const std::uint64_t end = saturating_add(offset, bytes);
  if (end > workspace_bytes_) workspace_bytes_ = end;
}

void Ledger::save(Slot slot, std::uint64_t bytes) {
  if (pass_ == Pass::kRun) return book(slot, bytes);
  if (bytes == 0) return;
  const std::uint64_t offset = round_up_bytes(saved_bytes_, kAlignment);
  places_[static_cast<int>(slot)] = {offset, bytes, true};
  saved_bytes_ = saturating_add(offset, bytes);
}

}  // namespace flce
