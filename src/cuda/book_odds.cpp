// SPDX-License-Identifier: Apache-2.0
// What each method books by route hopper. Pure: the planner calls it many times.
//   fused      C*V exponentials in bf16, C*H scaled hidden states in bf16; of a bf16 grad_weight
//              the lower halves of the rows that are targets (at most C*H*2) or, over several
//              chunks or added to what is there, of all (V*H*2); for few tokens f32 sums of tiles
//              of grad_hidden (at most 17 MB)
//   recompute  C*slab exponentials, the same for a slab, the lower halves of N*H sums
//   the loss   the statistics of tiles, 8 bytes for 192 logits, 16 with options
//   grad_bias  V sums in f64
#include <algorithm>

#include "core/int_math.hpp"
#include "cuda/odds_sizes.hpp"
#include "cuda/sizes.hpp"
#include "kernels/hopper/tile_sizes.hpp"
#include "kernels/portable/state.hpp"

namespace flce::cuda {
namespace {

constexpr std::int64_t kSlabUnit = hopper::kTile.cols;

// Of an H100 SXM and an H200. Another number makes the choice of a slab a little worse.
constexpr int kMultiprocessors = 132;

// What a slab takes beside its products' multiply-adds: some 50 us of launches, of beginnings and
// ends of products, and of the smaller kernels, at 2048 multiply-adds a cycle.
constexpr double kWorkOfLaunches = 1.5e8;

// What a slab takes, up to a factor: multiply-adds of the busiest multiprocessor.
double work_of_slab(const Problem& p, std::int64_t tokens, std::int64_t slab) {
  if (slab == 0) return 0.0;
  const auto work = [](const hopper::TileSize& tile, std::int64_t rows, std::int64_t cols,
                       std::int64_t k) {
    return static_cast<double>(hopper::busiest(tile, rows, cols, kMultiprocessors)) *
           static_cast<double>(k);
  };
  const hopper::TileSize& of_hidden = hopper::hidden_tile(p.hidden, tokens, kMultiprocessors);
  return kWorkOfLaunches + work(hopper::kTile, tokens, slab, p.hidden) +
         work(of_hidden, p.hidden, tokens, slab) + work(hopper::kTile, p.hidden, slab, tokens);
}

// The last slab may be a smaller one.
double work_of_slabs(const Problem& p, std::int64_t tokens, std::int64_t slab) {
  return static_cast<double>(p.vocab / slab) * work_of_slab(p, tokens, slab) +
         work_of_slab(p, tokens, p.vocab % slab);
}

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
  s.num_tiles = ceil_div(p.vocab, std::int64_t{hopper::kTile.cols});
  s.sample_cols = std::min(p.vocab, kSampleCols);
  s.sums_grad_hidden = p.wants.grad_hidden && s.slab < p.vocab;
  if (p.wants.grad_hidden) {
    s.hidden_parts = hopper::hidden_parts(p.hidden, s.chunk, s.slab, kMultiprocessors);
    if (s.hidden_parts > 1) s.hidden_parts_bytes = hopper::parts_bytes(p.hidden, s.chunk);
  }
  s.has_f32_weight = grad_weight_dtype_of(p) == Dtype::kF32;
  const bool is_sum = s.num_chunks > 1 || p.accumulate_grad_weight;
  s.sums_grad_weight = p.wants.grad_weight && is_sum && !s.has_f32_weight;
  const bool is_written = p.wants.grad_weight && !is_sum && !s.has_f32_weight;
  s.sum_rows = is_written ? std::min(s.chunk, s.slab) : 0;
  s.smoothing_rows = p.options.label_smoothing != 0.0 ? hopper::kSmoothingRows : 0;
  s.has_options = has_options(p);
  s.part_bytes = s.has_options ? kOptionsPartBytes : kTilePartBytes;
  s.has_entropy_gradient = p.grad_entropy_dtype != Dtype::kNone && p.wants.any_gradient();
  return s;
}

void book_odds(const Problem& p, const Tiling& tiling, const Kept& kept, Ledger& to) {
  const OddsSizes s = odds_sizes_of(p, tiling, kept);
  Book ledger(to);
  book_tokens(p, tiling, ledger);
  const bool is_recompute = tiling.method == Method::kRecompute;
  const Lifetime before_gradients{Stage::kPartial, Stage::kCombine};
  const Lifetime gradients{Stage::kGradHidden, Stage::kGradWeight};
  // `fused` has them from the first product on, `recompute` makes them again.
  const Lifetime exponentials = is_recompute ? gradients : kAlways;
  const Lifetime grad_weight =
      is_recompute ? gradients : Lifetime{Stage::kGradWeight, Stage::kGradWeight};
  const Lifetime grad_hidden{Stage::kGradHidden, Stage::kGradHidden};
  const std::uint64_t lists = p.wants.grad_weight ? bytes_of(p.vocab, 2, 4) : 0;
  ledger.book(Slot::kTokenRows,
              saturating_add(bytes_of(s.part_stride, s.has_entropy_gradient ? 8 : 6, 4), lists));
  if (s.smoothing_rows > 0) {
    // Parts of sums in f64 and two sums; then the sum over classes and a number for each token.
    ledger.book(Slot::kSmoothing,
                saturating_add(bytes_of(hopper::kSumSlices, p.hidden + 1, 8),
                               saturating_add(2 * 8, bytes_of(p.hidden + s.part_stride, 1, 4))));
  }
  if (p.wants.any_gradient()) {
    ledger.book(Slot::kKept, bytes_of(s.chunk + s.smoothing_rows, s.e_cols, 2), exponentials);
    ledger.book(Slot::kTargetSums, bytes_of(s.sum_rows, p.hidden, 2), grad_weight);
  }
  ledger.book(Slot::kTileStats,
              std::max(bytes_of(s.part_stride, s.num_tiles, s.part_bytes),
                       bytes_of(s.chunk, s.sample_cols, 4)),
              before_gradients);
  // The sample's product; also cuBLASLt's sums in f32.
  ledger.book(Slot::kGemmScratch, gemm_scratch_bytes(p, s.chunk),
              s.has_f32_weight ? kAlways : before_gradients);
  if (!p.wants.any_gradient()) return;
  if (s.sums_grad_hidden) {
    ledger.book(Slot::kGradHiddenAcc, bytes_of(p.tokens, p.hidden, 2), gradients);
  }
  if (s.hidden_parts > 1) {
    ledger.book(Slot::kHiddenParts, static_cast<std::uint64_t>(s.hidden_parts_bytes), grad_hidden);
  }
  if (p.wants.grad_bias) ledger.book(Slot::kGradBiasAcc, bytes_of(p.vocab, 1, 8));
  if (!p.wants.grad_weight) return;
  ledger.book(Slot::kHiddenPacked, bytes_of(s.chunk + s.smoothing_rows, p.hidden, 2), gradients);
  if (s.sums_grad_weight) {
    ledger.book(Slot::kGradWeightAcc, bytes_of(s.slab, p.hidden, 2), exponentials);
  }
}

std::int64_t odds_slab(const Problem& p, std::int64_t tokens) {
  // Lower halves of grad_hidden's sums and scaled rows stay; a column of exponentials takes 2 bytes
  // a token, a row of a target's halves 2 a hidden state.
  const std::int64_t room = kSlabBytes - 2 * p.hidden * (p.tokens + tokens);
  const std::int64_t most =
      std::clamp(room / (2 * tokens + 2 * p.hidden), kMinSlab, kMaxSlab) / kSlabUnit * kSlabUnit;
  std::int64_t best = most;
  double least = 0.0;
  for (std::int64_t slab = most; 2 * slab > most && slab >= kMinSlab; slab -= kSlabUnit) {
    const double work = work_of_slabs(p, tokens, slab);
    if (slab == most || work < least) {
      best = slab;
      least = work;
    }
  }
  return best;
}

}  // namespace flce::cuda
