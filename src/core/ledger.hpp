// SPDX-License-Identifier: Apache-2.0
// The workspace ledger. A backend books slots while planning; the places that come out are part of
// the Plan, and running looks pointers up in them, so booked and used bytes cannot drift apart.
//
// A slot lives through a range of stages; two slots that never live at the same time share bytes.
#pragma once

#include <array>
#include <cstdint>

#include "flce/plan.hpp"

namespace flce {

// The stages of one chunk, in order. Slots that outlive a chunk use kAlways.
enum class Stage : std::int32_t { kPartial = 0, kCombine, kGradHidden, kGradWeight };

struct Lifetime {
  Stage first = Stage::kPartial;
  Stage last = Stage::kGradWeight;
  constexpr bool overlaps(Lifetime other) const {
    return first <= other.last && other.first <= last;
  }
};
inline constexpr Lifetime kAlways{};

class Ledger {
 public:
  // Every slot starts on a multiple of this; workspaces are aligned to it.
  static constexpr std::uint64_t kAlignment = 64;

  explicit Ledger(Pass pass) : pass_(pass) {}

  // Books `bytes` for `slot`; 0 bytes book nothing. A slot is booked at most once.
  void book(Slot slot, std::uint64_t bytes, Lifetime lifetime = kAlways);
  // Books a slot that must survive from the forward to the backward call. With Pass::kRun there is
  // nothing to survive and it becomes part of the workspace.
  void save(Slot slot, std::uint64_t bytes);

  const std::array<SlotPlace, kNumSlots>& places() const { return places_; }
  std::uint64_t workspace_bytes() const { return workspace_bytes_; }
  std::uint64_t saved_bytes() const { return saved_bytes_; }

 private:
  std::uint64_t first_fit(std::uint64_t bytes, Lifetime lifetime) const;

  Pass pass_;
  std::array<SlotPlace, kNumSlots> places_{};
  std::array<Lifetime, kNumSlots> lifetimes_{};
  std::uint64_t workspace_bytes_ = 0;
  std::uint64_t saved_bytes_ = 0;
};

}  // namespace flce
