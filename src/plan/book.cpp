// SPDX-License-Identifier: Apache-2.0
// Books a method at a tiling. Chooses nothing: the chunk comes from budget.cpp.
#include "plan/book.hpp"

#include <algorithm>

#include "core/int_math.hpp"
#include "plan/bytes.hpp"

namespace flce {
namespace {

// naive-eager: everything of all N tokens at once. chunked-eager: the logits of every chunk stay in
// the graph until the backward pass, the rest lives for one chunk. No gradient, no graph.
//
// Checked against the published 36.02 GB of N=16384, V=128256, H=4096 in bf16: 16 bytes a logit,
// inputs and gradients make 35.99.
void book_eager(const Problem& problem, const Tiling& tiling, Ledger& ledger) {
  const EagerLogit logit = eager_logit(problem);
  const bool chunked = tiling.method == Method::kChunkedEager;
  ledger.save(Slot::kKept, bytes_of(problem.tokens, problem.vocab, logit.kept_bytes));
  ledger.book(Slot::kGradientPacked,
              bytes_of(chunked ? std::min(tiling.chunk, problem.tokens) : problem.tokens,
                       problem.vocab, logit.all_bytes - logit.kept_bytes));
}

}  // namespace

EagerLogit eager_logit(const Problem& problem) {
  const std::int64_t in = size_of(problem.dtype);
  const std::int64_t wide = size_of(accumulation_dtype(problem.dtype));
  // 16-bit inputs: logits, f32 copy, f32 log-probabilities; others: logits, log-probabilities.
  const std::int64_t forward = in < wide ? in + 2 * wide : 2 * wide;
  if (!problem.wants.any_gradient()) return {forward, 0};
  // The gradient in f32 and, for 16-bit inputs, in their type.
  return {forward + (in < wide ? wide + in : wide), in};
}

Booking book_method(const Backend& backend, const MethodInfo& method, const Problem& problem,
                    const DeviceCaps& caps, const Tiling& tiling) {
  Ledger ledger(problem.pass);
  if (method.runnable) {
    backend.book(problem, caps, tiling, method.kept(problem, tiling), ledger);
  } else {
    book_eager(problem, tiling, ledger);
  }
  Booking booking;
  booking.tiling = tiling;
  booking.slots = ledger.places();
  booking.workspace_bytes = ledger.workspace_bytes();
  booking.saved_bytes = ledger.saved_bytes();
  booking.extra_bytes = saturating_add(booking.workspace_bytes, booking.saved_bytes);
  return booking;
}

}  // namespace flce
