// SPDX-License-Identifier: Apache-2.0
// The workspace ledger. A backend books slots while planning; the places that come out are part of
// the Plan, and running looks pointers up in them, so booked and used bytes cannot drift apart.
//
// A slot lives through a range of stages; two slots that never live at the same time share bytes.
// Lifetimes lie within each other or apart. Those that outlast others are placed first: then the
// workspace takes what its fullest stage does, and never less where a slot takes more.
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

  // Where everything that was booked lies.
  struct Layout {
    std::array<SlotPlace, kNumSlots> places{};
    std::uint64_t workspace_bytes = 0;
    std::uint64_t saved_bytes = 0;
  };

  // Books `bytes` for `slot`; 0 bytes book nothing. A slot is booked at most once.
  void book(Slot slot, std::uint64_t bytes, Lifetime lifetime = kAlways);
  // Books a slot that must survive from the forward to the backward call. With Pass::kRun there is
  // nothing to survive and it becomes part of the workspace.
  void save(Slot slot, std::uint64_t bytes);

  Layout layout() const;

 private:
  struct Booked {
    Slot slot{};
    std::uint64_t bytes = 0;
    Lifetime lifetime;
    bool saved = false;
  };
  void add(const Booked& booked);
  std::uint64_t end_below(const Layout& layout, const Booked& booked) const;

  Pass pass_;
  std::array<Booked, kNumSlots> booked_{};
  int count_ = 0;
};

}  // namespace flce
