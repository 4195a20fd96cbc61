// SPDX-License-Identifier: Apache-2.0
// Books a method at a tiling. Chooses nothing: the chunk comes from budget.cpp.
#include "plan/book.hpp"

#include <algorithm>

#include "backend/eager.hpp"
#include "core/int_math.hpp"

namespace flce {
namespace {

// naive-eager: everything of all N tokens at once. chunked-eager: the logits of every chunk stay in
// the graph until the backward pass, the rest lives for one chunk. No gradient, no graph. What is
// planned only has no products that need room.
void book_eager(const Backend& backend, const MethodInfo& method, const Problem& problem,
                const DeviceCaps& caps, const Tiling& tiling, Ledger& ledger) {
  const std::int64_t chunk = std::min(tiling.chunk, problem.tokens);
  const bool runs = method.planned_only(problem) == nullptr;
  const std::uint64_t scratch = runs ? backend.eager_scratch_bytes(problem, caps, chunk) : 0;
  ledger.save(Slot::kKept,
              bytes_of(problem.tokens, problem.vocab, eager_logit(problem).kept_bytes));
  ledger.book(Slot::kGradientPacked, eager_room(problem, chunk, scratch).bytes);
  if (runs) ledger.book(Slot::kRowState, backend.eager_state_bytes(problem));
}

}  // namespace

Booking book_method(const Backend& backend, const MethodInfo& method, const Problem& problem,
                    const DeviceCaps& caps, const Tiling& tiling) {
  Ledger ledger(problem.pass);
  if (method.is_eager) {
    book_eager(backend, method, problem, caps, tiling, ledger);
  } else {
    backend.book(problem, caps, tiling, method.kept(problem, tiling), ledger);
  }
  Booking booking;
  booking.tiling = tiling;
  const Ledger::Layout layout = ledger.layout();
  booking.slots = layout.places;
  booking.workspace_bytes = layout.workspace_bytes;
  booking.saved_bytes = layout.saved_bytes;
  booking.extra_bytes = saturating_add(booking.workspace_bytes, booking.saved_bytes);
  return booking;
}

}  // namespace flce
