// SPDX-License-Identifier: Apache-2.0
// What each slot of a CPU step needs. Pure: the planner calls it many times.
#include "cpu/memory.hpp"

namespace flce::cpu {
namespace {

WeightSum weight_sum_of(const Problem& p, std::int64_t num_chunks) {
  const Dtype dtype = grad_weight_dtype_of(p);
  if (num_chunks <= 1 || dtype == accumulation_dtype(p.dtype)) return WeightSum::kDirect;
  return dtype == Dtype::kBF16 ? WeightSum::kSplit : WeightSum::kBuffer;
}

// The width of equal strips of at most `most` columns: whole strips of kStrip if several.
std::int64_t strip_cols(std::int64_t cols, std::int64_t most) {
  const std::int64_t strips = std::max<std::int64_t>(ceil_div(cols, most), 1);
  return strips == 1 ? round_up(cols, kColPad) : round_up(ceil_div(cols, strips), kStrip);
}

}  // namespace

Sizes sizes_of(const Problem& p, const Tiling& tiling, const Kept& kept) {
  const bool is_fused = tiling.method == Method::kFused;
  Sizes s{};
  s.acc_size = size_of(accumulation_dtype(p.dtype));
  s.chunk = std::max<std::int64_t>(std::min(tiling.chunk, p.tokens), 1);
  s.num_chunks = std::max<std::int64_t>(ceil_div(p.tokens, s.chunk), 1);
  s.chunk_padded = round_up(s.chunk, kRowPad);
  s.state_tokens = is_fused ? s.chunk : std::max<std::int64_t>(p.tokens, 1);
  s.stats_tokens = is_fused ? s.chunk : balanced_tokens(s.chunk);
  s.num_tiles = ceil_div(p.vocab, kTileVocab);
  s.hidden_padded = round_up(p.hidden, kColPad);
  s.stat_planes = 1 + (p.wants.entropy || p.grad_entropy_dtype != Dtype::kNone ? 1 : 0) +
                  (p.options.label_smoothing != 0.0 ? 1 : 0);
  s.kept_dtype = kept.what == Keep::kExponentials && p.dtype == Dtype::kBF16
                     ? Dtype::kBF16
                     : accumulation_dtype(p.dtype);
  s.weight_sum = weight_sum_of(p, s.num_chunks);
  s.sum_rows = tiling.method == Method::kRecompute ? std::min(tiling.slab, p.vocab) : p.vocab;
  s.sum_cols = strip_cols(p.hidden, kSumCols);
  s.lane_partial = kTileVocab * p.hidden + kTileTokens * kTileVocab;
  s.weight_cols = s.chunk > kTokenBlock ? s.hidden_padded : strip_cols(p.hidden, kWeightCols);
  s.lane_weight = 0;
  if (p.wants.grad_weight || p.wants.grad_bias) {
    s.lane_weight = kTileVocab * round_up(std::min(s.chunk, kTokenBlock), 2) +
                    (p.wants.grad_weight ? kTileVocab * s.weight_cols : 0);
  }
  return s;
}

namespace {

void book_statistics(const Problem& p, const Sizes& s, int num_lanes, Ledger& ledger) {
  const Lifetime forward{Stage::kPartial, Stage::kCombine};
  // The gradients need what the kept exponentials are relative to.
  const bool keeps_max = s.state_tokens == s.stats_tokens && p.wants.any_gradient();
  ledger.book(Slot::kTileMax, bytes_of(s.stats_tokens, s.num_tiles, s.acc_size),
              keeps_max ? kAlways : forward);
  const std::uint64_t values = bytes_of(s.stats_tokens * s.stat_planes, s.num_tiles, s.acc_size);
  const bool wants_best = p.wants.argmax || p.wants.num_correct;
  const std::uint64_t best = wants_best ? bytes_of(s.stats_tokens, s.num_tiles, 4) : 0;
  ledger.book(Slot::kTileStats, saturating_add(values, best), forward);
  ledger.book(Slot::kTopk,
              bytes_of(saturating_mul(s.stats_tokens, p.wants.topk), num_lanes, s.acc_size + 8),
              forward);
  ledger.book(Slot::kHiddenPacked,
              bytes_of(round_up(s.stats_tokens, kRowPad), p.hidden, s.acc_size),
              {Stage::kPartial, Stage::kPartial});
}

void book_gradients(const Problem& p, const Tiling& tiling, const Sizes& s, Ledger& ledger) {
  const bool sums_over_slabs = tiling.method == Method::kRecompute;
  if (p.wants.grad_hidden) {
    const Lifetime here{Stage::kGradHidden, Stage::kGradHidden};
    const std::uint64_t sums = sums_over_slabs
                                   ? bytes_of(p.tokens + kRowPad, s.hidden_padded, s.acc_size)
                                   : bytes_of(s.chunk_padded, s.sum_cols, s.acc_size);
    ledger.book(Slot::kGradHiddenAcc, sums, sums_over_slabs ? kAlways : here);
    ledger.book(Slot::kGradientPacked,
                bytes_of(kSumBuffers * s.chunk_padded, kSumBlock, s.acc_size), here);
    ledger.book(Slot::kWeightPacked, bytes_of(kSumBuffers * kSumBlock, s.sum_cols, s.acc_size),
                here);
  }
  if (p.wants.grad_weight) {
    ledger.book(Slot::kHiddenByToken, bytes_of(round_up(s.chunk, 2), s.hidden_padded, s.acc_size),
                {Stage::kGradWeight, Stage::kGradWeight});
    const std::int64_t half = s.weight_sum == WeightSum::kSplit ? 2 : s.acc_size;
    if (s.weight_sum != WeightSum::kDirect) {
      ledger.book(Slot::kGradWeightAcc, bytes_of(s.sum_rows, p.hidden, half));
    }
  }
  if (p.wants.grad_bias) ledger.book(Slot::kGradBiasAcc, bytes_of(p.vocab, 1, 8));
}

}  // namespace

void book_cpu(const Problem& p, const DeviceCaps& caps, const Tiling& tiling, const Kept& kept,
              Ledger& ledger) {
  const Sizes s = sizes_of(p, tiling, kept);
  const std::uint64_t state = bytes_of(s.state_tokens, 1, sizeof(RowRecord));
  const std::uint64_t kept_bytes = bytes_of(kept.tokens, kept.vocab, size_of(s.kept_dtype));
  // Fused has nothing left to save: its gradients are made in the forward call.
  if (tiling.method != Method::kFused) {
    ledger.save(Slot::kRowState, state);
    ledger.save(Slot::kReduction, sizeof(Totals));
  } else {
    ledger.book(Slot::kRowState, state);
    ledger.book(Slot::kReduction, sizeof(Totals));
  }
  if (kept.for_backward) {
    ledger.save(Slot::kKept, kept_bytes);
  } else {
    ledger.book(Slot::kKept, kept_bytes);
  }
  const std::int64_t coefficients =
      p.dtype == Dtype::kF64 ? sizeof(RowCoefficients<double>) : sizeof(RowCoefficients<float>);
  ledger.book(Slot::kCoefficients, bytes_of(s.state_tokens, 1, coefficients + 4));
  if (p.has_bias()) ledger.book(Slot::kBias, bytes_of(p.vocab, 1, s.acc_size));
  if (p.has_class_weight()) {
    const std::uint64_t weights = round_up_bytes(bytes_of(p.vocab, 1, s.acc_size), 8);
    ledger.book(Slot::kClassWeight, saturating_add(weights, bytes_of(s.num_tiles, 1, 8)));
  }
  book_statistics(p, s, caps.num_threads, ledger);
  if (p.wants.any_gradient()) book_gradients(p, tiling, s, ledger);
  ledger.book(Slot::kThreadScratch,
              bytes_of(std::max(s.lane_partial, s.lane_weight), caps.num_threads, s.acc_size));
}

Tiling preferred_cpu_tiling(const Problem& p, Method method) {
  constexpr std::int64_t kSlab = 43 * kTileVocab;
  Tiling tiling{method, balanced_tokens(p.tokens), p.vocab};
  if (method == Method::kNaive) tiling.chunk = std::max<std::int64_t>(p.tokens, 1);
  if (method == Method::kRecompute)
    tiling.slab = std::min(kSlab, std::max<std::int64_t>(p.vocab, 1));
  return tiling;
}

}  // namespace flce::cpu
