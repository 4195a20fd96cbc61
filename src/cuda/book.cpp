// SPDX-License-Identifier: Apache-2.0
// What each method books on a CUDA card. Pure: the planner calls it many times.
//   naive      N*V logits, turned into their gradient in place (in two calls: a gradient beside
//              them, for a backward pass may come again), N*H packed hidden states
//   chunked    N*V logits, kept, one chunk's gradient, C*H packed hidden states, accumulator
//   fused      C*V logits, turned into their gradient in place, C*H packed hidden states,
//              accumulator
//   recompute  C*slab logits, C*H packed hidden states, N*H sums, slab*H accumulator
// Logits are in the accumulation type, gradients in the problem's.
#include <algorithm>

#include "core/int_math.hpp"
#include "cuda/odds_sizes.hpp"
#include "cuda/sizes.hpp"
#include "kernels/portable/state.hpp"

namespace flce::cuda {
namespace {

std::int64_t in_lines(std::int64_t elements, std::int64_t size) {
  return round_up(elements, kLineBytes / size);
}

bool keeps_gradient_apart(const Problem& p, Method method) {
  if (!p.wants.any_gradient()) return false;
  return method == Method::kChunked ||
         (method == Method::kNaive && p.pass == Pass::kForwardBackward);
}

}  // namespace

Sizes sizes_of(const Problem& p, const Tiling& tiling, const Kept& kept) {
  const bool is_recompute = tiling.method == Method::kRecompute;
  Sizes s;
  s.acc_size = size_of(accumulation_dtype(p.dtype));
  s.in_size = size_of(p.dtype);
  s.chunk = std::max<std::int64_t>(std::min(tiling.chunk, p.tokens), 1);
  s.num_chunks = std::max<std::int64_t>(ceil_div(p.tokens, s.chunk), 1);
  s.piece_tokens = std::min(s.chunk, kPieceTokens);
  s.piece_cols = std::min(
      in_lines(p.vocab, s.acc_size),
      in_lines(std::max<std::int64_t>(kPieceBytes / (s.piece_tokens * s.acc_size), 1), s.acc_size));
  s.kept_rows = kept.what == Keep::kNothing ? s.piece_tokens : kept.tokens;
  s.kept_cols = kept.what == Keep::kNothing ? s.piece_cols : in_lines(kept.vocab, s.acc_size);
  if (kept.what != Keep::kNothing) s.piece_cols = std::min(s.piece_cols, s.kept_cols);
  s.hidden_cols = round_up(p.hidden, kPackBytes / s.in_size);
  s.has_own_gradient = keeps_gradient_apart(p, tiling.method);
  const bool is_wide = grad_weight_dtype_of(p) == accumulation_dtype(p.dtype);
  s.weight_sum = s.num_chunks > 1 && !is_wide ? WeightSum::kBuffer : WeightSum::kDirect;
  s.sum_rows = is_recompute ? std::min(tiling.slab, p.vocab) : p.vocab;
  s.sums_grad_hidden =
      is_recompute && tiling.slab < p.vocab && p.dtype != accumulation_dtype(p.dtype);
  return s;
}

// A product that is split along its sum needs room for its parts; small ones need little.
std::uint64_t gemm_scratch_bytes(const Problem& p, std::int64_t rows) {
  const std::int64_t wide = size_of(accumulation_dtype(p.dtype));
  const std::uint64_t parts = bytes_of(rows, std::max(p.vocab, p.hidden), 4 * wide);
  return std::min<std::uint64_t>(round_up_bytes(parts, 1 << 16), kGemmScratchBytes) +
         kGemmScratchAlignment;
}

void book_tokens(const Problem& p, const Tiling& tiling, Book& ledger) {
  const std::int64_t acc_size = size_of(accumulation_dtype(p.dtype));
  const std::int64_t chunk = std::max<std::int64_t>(std::min(tiling.chunk, p.tokens), 1);
  // Fused has nothing left to save: its gradients are made in the forward call.
  const std::uint64_t state = bytes_of(std::max<std::int64_t>(p.tokens, 1), 1, sizeof(TokenState));
  if (tiling.method == Method::kFused) {
    ledger.book(Slot::kRowState, state);
  } else {
    ledger.save(Slot::kRowState, state);
  }
  ledger.save(Slot::kReduction, kTotalsBytes);
  if (p.wants.any_gradient()) {
    ledger.book(Slot::kCoefficients,
                saturating_add(bytes_of(p.tokens, 1, sizeof(TokenGradient)), kGradientScaleBytes));
  }
  if (p.has_bias()) ledger.book(Slot::kBias, bytes_of(p.vocab, 1, acc_size));
  if (p.has_class_weight()) ledger.book(Slot::kClassWeight, bytes_of(p.vocab, 1, acc_size));
  ledger.book(Slot::kTopk, bytes_of(chunk, saturating_mul(p.wants.topk, 2), sizeof(TopkCandidate)),
              {Stage::kPartial, Stage::kCombine});
}

namespace {

void book_logits(const Problem& p, const Kept& kept, const Sizes& s, Book& ledger) {
  const std::uint64_t logits = bytes_of(s.kept_rows, s.kept_cols, s.acc_size);
  if (kept.for_backward) {
    ledger.save(Slot::kKept, logits);
  } else {
    ledger.book(Slot::kKept, logits);
  }
  if (s.has_own_gradient) {
    ledger.book(Slot::kGradientPacked, bytes_of(s.chunk, in_lines(p.vocab, s.in_size), s.in_size));
  }
  ledger.book(Slot::kHiddenPacked, bytes_of(s.chunk, s.hidden_cols, s.in_size));
  ledger.book(Slot::kGemmScratch, gemm_scratch_bytes(p, s.chunk));
}

void book_gradients(const Problem& p, const Sizes& s, Book& ledger) {
  if (p.wants.grad_hidden && s.sums_grad_hidden) {
    ledger.book(Slot::kGradHiddenAcc, bytes_of(p.tokens, p.hidden, s.acc_size));
  }
  if (p.wants.grad_weight && s.weight_sum == WeightSum::kBuffer) {
    ledger.book(Slot::kGradWeightAcc, bytes_of(s.sum_rows, p.hidden, s.acc_size));
  }
  if (p.wants.grad_bias) ledger.book(Slot::kGradBiasAcc, bytes_of(p.vocab, 1, 8));
}

}  // namespace

void book(const Problem& p, const Tiling& tiling, const Kept& kept, Ledger& to) {
  if (tiling.route == Route::kHopper) return book_odds(p, tiling, kept, to);
  const Sizes s = sizes_of(p, tiling, kept);
  Book ledger(to);
  book_tokens(p, tiling, ledger);
  if (p.tokens > 0) book_logits(p, kept, s, ledger);  // no token, no product
  if (p.wants.any_gradient()) book_gradients(p, s, ledger);
}

}  // namespace flce::cuda
