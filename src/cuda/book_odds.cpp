// SPDX-License-Identifier: Apache-2.0
// What each method books by route hopper. Pure: the planner calls it many times.
//   fused      C*V exponentials in bf16, C*H scaled hidden states in bf16, sums of target terms (at
//              most C*H in f32), sums of a bf16 grad_weight (V*H*4)
//              over several chunks
//   recompute  C*slab exponentials, the same for a slab, N*H sums in f32
//   the loss   the statistics of tiles, 8 bytes for 192 logits, 16 with options
//   grad_bias  V sums in f64
#include <algorithm>

#include "core/int_math.hpp"
#include "cuda/odds_sizes.hpp"
#include "cuda/sizes.hpp"
#include "kernels/portable/state.hpp"

namespace flce::cuda {

namespace {

// As hopper::has_options of a call.
bool has_options(const Problem& p) {
  const Wants& w = p.wants;
  return p.has_bias() || p.options.softcap != 0.0 || w.entropy ||
         p.grad_entropy_dtype != Dtype::kNone || w.argmax || w.num_correct;
}

}  // namespace

OddsSizes odds_sizes_of(const Problem& p, const Tiling& tiling, const Kept& kept) {
  const bool is_recompute = tiling.method == Method::kRecompute;
  OddsSizes s;
  s.chunk = std::max<std::int64_t>(std::min(tiling.chunk, p.tokens), 1);
  s.num_chunks = std::max<std::int64_t>(ceil_div(p.tokens, s.chunk), 1);
  s.slab = is_recompute ? std::min(tiling.slab, p.vocab) : p.vocab;
  s.e_cols = kept.what == Keep::kNothing ? 0 : round_up(s.slab, kLineBytes / 2);
  s.part_stride = round_up(s.chunk, 32);
  s.num_tiles = ceil_div(p.vocab, kPartCols);
  s.sample_cols = std::min(p.vocab, kSampleCols);
  s.sum_rows = p.wants.grad_weight ? std::min(s.chunk, s.slab) : 0;
  s.sums_grad_hidden = p.wants.grad_hidden && s.slab < p.vocab;
  s.has_f32_weight = grad_weight_dtype_of(p) == Dtype::kF32;
  s.sums_grad_weight = p.wants.grad_weight && s.num_chunks > 1 && !s.has_f32_weight;
  s.part_bytes = has_options(p) ? 16 : 8;
  s.has_entropy_gradient = p.grad_entropy_dtype != Dtype::kNone && p.wants.any_gradient();
  return s;
}

void book_odds(const Problem& p, const Tiling& tiling, const Kept& kept, Ledger& to) {
  const OddsSizes s = odds_sizes_of(p, tiling, kept);
  Book ledger(to);
  book_tokens(p, tiling, ledger);
  const Lifetime before_gradients{Stage::kPartial, Stage::kCombine};
  const bool is_recompute = tiling.method == Method::kRecompute;
  ledger.book(Slot::kTokenRows, bytes_of(s.part_stride, s.has_entropy_gradient ? 8 : 6, 4));
  ledger.book(Slot::kTileStats,
              std::max(bytes_of(s.part_stride, s.num_tiles, s.part_bytes),
                       bytes_of(s.chunk, s.sample_cols, 4)),
              before_gradients);
  // Only the sample's product, unless cuBLASLt makes sums in f32.
  const bool scratch_stays = s.sums_grad_hidden || s.has_f32_weight || s.sums_grad_weight;
  ledger.book(Slot::kGemmScratch, gemm_scratch_bytes(p, s.chunk),
              scratch_stays ? kAlways : before_gradients);
  if (!p.wants.any_gradient()) return;
  ledger.book(Slot::kKept, bytes_of(s.chunk, s.e_cols, 2));
  if (s.sums_grad_hidden) ledger.book(Slot::kGradHiddenAcc, bytes_of(p.tokens, p.hidden, 4));
  if (p.wants.grad_bias) ledger.book(Slot::kGradBiasAcc, bytes_of(p.vocab, 1, 8));
  if (!p.wants.grad_weight) return;
  ledger.book(Slot::kHiddenPacked, bytes_of(s.chunk, p.hidden, 2));
  // A backward pass by slabs has no stages of its own to share with.
  const Lifetime gradients =
      is_recompute ? kAlways : Lifetime{Stage::kGradWeight, Stage::kGradWeight};
  ledger.book(Slot::kTargetSums,
              saturating_add(bytes_of(s.sum_rows, p.hidden, 4), bytes_of(s.slab, 1, 4)), gradients);
  if (s.sums_grad_weight) ledger.book(Slot::kGradWeightAcc, bytes_of(s.slab, p.hidden, 4));
}

// Exponentials take 2 bytes for each token, sums of target terms 4 for each hidden state.
std::int64_t odds_slab(const Problem& p, std::int64_t tokens, std::int64_t room_bytes) {
  return room_bytes / (2 * tokens + 4 * p.hidden);
}

}  // namespace flce::cuda
