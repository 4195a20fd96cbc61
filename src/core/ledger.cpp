// SPDX-License-Identifier: Apache-2.0
#include "core/ledger.hpp"

#include <algorithm>

#include "core/check.hpp"
#include "core/int_math.hpp"

namespace flce {
namespace {

int num_stages(Lifetime lifetime) {
  return static_cast<int>(lifetime.last) - static_cast<int>(lifetime.first) + 1;
}

std::uint64_t end_of(const SlotPlace& place) { return saturating_add(place.offset, place.bytes); }

}  // namespace

void Ledger::add(const Booked& booked) {
  expect(std::none_of(booked_.begin(), booked_.begin() + count_,
                      [&](const Booked& other) { return other.slot == booked.slot; }));
  if (booked.bytes > 0) booked_[count_++] = booked;
}

void Ledger::book(Slot slot, std::uint64_t bytes, Lifetime lifetime) {
  add({slot, bytes, lifetime, false});
}

void Ledger::save(Slot slot, std::uint64_t bytes) {
  add({slot, bytes, kAlways, pass_ != Pass::kRun});
}

// The end of what lies already where `booked` may not.
std::uint64_t Ledger::end_below(const Layout& layout, const Booked& booked) const {
  if (booked.saved) return layout.saved_bytes;
  std::uint64_t end = 0;
  for (int i = 0; i < count_; ++i) {
    const SlotPlace& other = layout.places[static_cast<int>(booked_[i].slot)];
    if (other.saved || !booked.lifetime.overlaps(booked_[i].lifetime)) continue;
    end = std::max(end, end_of(other));
  }
  return end;
}

Ledger::Layout Ledger::layout() const {
  Layout layout;
  for (int stages = num_stages(kAlways); stages > 0; --stages) {
    for (int i = 0; i < count_; ++i) {
      const Booked& booked = booked_[i];
      if (num_stages(booked.lifetime) != stages) continue;
      const std::uint64_t offset = round_up_bytes(end_below(layout, booked), kAlignment);
      SlotPlace& place = layout.places[static_cast<int>(booked.slot)];
      place = {offset, booked.bytes, booked.saved};
      std::uint64_t& total = booked.saved ? layout.saved_bytes : layout.workspace_bytes;
      total = std::max(total, end_of(place));
    }
  }
  return layout;
}

}  // namespace flce
