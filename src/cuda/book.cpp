// SPDX-License-Identifier: Apache-2.0
// What each method books on a CUDA card, after DESIGN sections 2, 7, 8 and 9:
//   naive      N*V f32 logits, turned into their gradient in place
//   chunked    N*V f32 logits, kept, and one chunk's gradient
//   fused      C*V (bf16: exponentials in 16 bits, else f32), C*H scaled hidden rows, accumulator
//   recompute  N statistics, N*slab, N*H f32
// Checked against the targets of section 9 by tests/unit/test_plan_cuda.cpp.
#include <algorithm>

#include "core/int_math.hpp"
#include "cuda/plan_backend.hpp"

namespace flce {
namespace {

constexpr std::int64_t kRowStateBytes = 40;  // offset, sums, coefficients, target order: 10 words
constexpr std::int64_t kReductionBytes = 256;
constexpr std::int64_t kTileColumns = 128;        // vocabulary rows per partial sum
constexpr std::int64_t kForwardColumns = 4096;    // of the portable forward pass that keeps nothing
constexpr std::int64_t kTopkCandidateBytes = 16;  // value and index, twice (merge)

bool is_16bit(Dtype dtype) { return dtype == Dtype::kBF16 || dtype == Dtype::kF16; }

// One booking: the sizes that several slots share.
struct Sizes {
  const Problem& problem;
  const Tiling& tiling;
  const Kept& kept;
  bool odds;          // fused and recompute in the odds form
  std::int64_t rows;  // tokens of one chunk
  bool several_chunks;
  Dtype grad_weight;
};

void book_rows(const Sizes& s, Ledger& ledger) {
  const std::uint64_t bytes = bytes_of(s.problem.tokens, 1, kRowStateBytes);
  if (s.tiling.method == Method::kFused) {
    ledger.book(Slot::kRowState, bytes);
  } else {
    ledger.save(Slot::kRowState, bytes);
  }
  ledger.save(Slot::kReduction, kReductionBytes);
  if (s.odds) {
    const std::int64_t sums = s.problem.wants.entropy ? 2 : 1;
    ledger.book(Slot::kTileStats,
                bytes_of(s.rows, ceil_div(s.problem.vocab, kTileColumns), 4 * sums),
                {Stage::kPartial, Stage::kCombine});
  }
  ledger.book(Slot::kTopk, bytes_of(s.rows, s.problem.wants.topk, kTopkCandidateBytes),
              {Stage::kPartial, Stage::kCombine});
}

void book_logits(const Sizes& s, Ledger& ledger) {
  if (s.kept.what == Keep::kNothing) {
    const std::int64_t columns = std::min(s.problem.vocab, kForwardColumns);
    if (!s.odds) ledger.book(Slot::kGradientPacked, bytes_of(s.rows, columns, 4));
    return;
  }
  const std::uint64_t bytes = bytes_of(s.kept.tokens, s.kept.vocab, s.odds ? 2 : 4);
  if (s.kept.for_backward) {
    ledger.save(Slot::kKept, bytes);
  } else {
    ledger.book(Slot::kKept, bytes);
  }
  if (s.tiling.method == Method::kChunked) {
    ledger.book(Slot::kGradientPacked, bytes_of(s.rows, s.problem.vocab, 4));
  }
}

// True where grad_weight cannot be rounded to its 16-bit type at once.
bool accumulates_weight(const Sizes& s) {
  if (!is_16bit(s.grad_weight)) return false;
  if (s.tiling.method == Method::kRecompute) return s.kept.tokens < s.problem.tokens;
  return s.tiling.method == Method::kFused && s.several_chunks;
}

void book_grad_weight(const Sizes& s, Ledger& ledger) {
  const Problem& p = s.problem;
  if (s.odds) {
    ledger.book(Slot::kHiddenByToken, bytes_of(s.kept.tokens, p.hidden, 2),
                {Stage::kCombine, Stage::kGradWeight});
  }
  if (accumulates_weight(s)) {
    // bf16 keeps the low halves of a split f32 accumulator, the high halves are grad_weight itself.
    const std::int64_t element = s.grad_weight == Dtype::kBF16 ? 2 : 4;
    const std::int64_t rows = s.tiling.method == Method::kRecompute ? s.kept.vocab : p.vocab;
    ledger.book(Slot::kGradWeightAcc, bytes_of(rows, p.hidden, element));
  } else if (s.odds && is_16bit(s.grad_weight)) {
    // The target terms, summed by target in f32 and added before the only rounding.
    ledger.book(Slot::kGradientPacked, bytes_of(std::min(s.kept.tokens, s.kept.vocab), p.hidden, 4),
                {Stage::kCombine, Stage::kGradWeight});
  }
}

void book_gradients(const Sizes& s, Ledger& ledger) {
  const Problem& p = s.problem;
  if (p.wants.grad_weight) book_grad_weight(s, ledger);
  const bool several_slabs = s.tiling.slab < p.vocab;
  if (p.wants.grad_hidden && s.tiling.method == Method::kRecompute && several_slabs &&
      is_16bit(p.dtype)) {
    ledger.book(Slot::kGradHiddenAcc, bytes_of(p.tokens, p.hidden, 4));
  }
  if (p.wants.grad_bias && s.tiling.method == Method::kFused && s.several_chunks) {
    ledger.book(Slot::kGradBiasAcc, bytes_of(p.vocab, 1, 4));
  }
}

}  // namespace

bool uses_odds_form(const Problem& problem) {
  const Options& options = problem.options;
  return problem.dtype == Dtype::kBF16 && !(options.softcap > 0 && options.label_smoothing > 0);
}

void book_cuda(const Problem& problem, const Tiling& tiling, const Kept& kept, Ledger& ledger) {
  const bool fused_kind = tiling.method == Method::kFused || tiling.method == Method::kRecompute;
  const Sizes sizes{
      problem,
      tiling,
      kept,
      fused_kind && uses_odds_form(problem),
      std::min(tiling.chunk, problem.tokens),
      tiling.chunk < problem.tokens,
      problem.grad_weight_dtype == Dtype::kNone ? problem.dtype : problem.grad_weight_dtype};
  book_rows(sizes, ledger);
  book_logits(sizes, ledger);
  if (problem.wants.any_gradient() && kept.what != Keep::kNothing) {
    book_gradients(sizes, ledger);
  }
}

}  // namespace flce
