// SPDX-License-Identifier: Apache-2.0
// The memory of one CPU step: how large each slot is, and typed pointers into the workspace. Sizes
// and pointers come from the same few functions, used by book() and by the verbs.
#pragma once

#include <algorithm>
#include <atomic>
#include <cstdint>

#include "backend/backend.hpp"
#include "core/check.hpp"
#include "core/dtypes.hpp"
#include "core/int_math.hpp"
#include "cpu/element.hpp"
#include "cpu/kernels.hpp"
#include "math/row.hpp"

namespace flce::cpu {

// Tokens of a piece where nothing else limits it: equal pieces of about 512, in whole panels. A
// ragged last piece would cost a pass over the weight like any other. Measured on two Zen 5 cores:
// 448-1008 tokens are best, 224 cost 3-11 %, 112 19-24 %.
inline std::int64_t balanced_tokens(std::int64_t tokens) {
  constexpr std::int64_t kTarget = 512;
  if (tokens <= 0) return 1;
  const std::int64_t pieces = std::max<std::int64_t>((tokens + kTarget / 2) / kTarget, 1);
  return std::min(round_up(ceil_div(tokens, pieces), kRowPad), tokens);
}
// Tokens that one task packs, in whole panels.
inline constexpr std::int64_t kPackTokens = 6 * kRowPad;
// Columns of a right operand that one task packs or multiplies; all panel widths divide it.
inline constexpr std::int64_t kStrip = 192;

// grad_hidden: vocabulary rows of a block of its sum (a tile), packed blocks that are held at once,
// tokens that one task multiplies, and columns whose sums are held at once.
inline constexpr std::int64_t kSumBlock = kTileVocab;
inline constexpr std::int64_t kSumBuffers = 3;
inline constexpr std::int64_t kSumTokens = 48;
inline constexpr std::int64_t kSumCols = 6 * kStrip;

// grad_weight: tokens of a block of its sum, and columns that are multiplied and stored at once.
inline constexpr std::int64_t kTokenBlock = 960;
inline constexpr std::int64_t kWeightCols = kStrip;

struct RowRecord {
  RowStats stats;
  double loss = 0.0;    // token weight included
  double z_part = 0.0;  // likewise
};

// Sums over the tokens, of which the reduced loss and the divisor are made.
struct Totals {
  double class_weight_sum = 0.0;   // sum_j w_j over the whole vocabulary
  double target_weight_sum = 0.0;  // sum of w_y over valid tokens
  double loss_sum = 0.0;
  double z_sum = 0.0;
  std::int64_t num_valid = 0;
  std::int64_t num_correct = 0;
};

// How grad_weight is summed over several chunks.
enum class WeightSum {
  kDirect,  // in the caller's buffer, which has the accumulation type (or there is one chunk)
  kSplit,   // bf16: high halves in the caller's buffer, low halves in the workspace; exact
  kBuffer,  // f32 in the workspace
};

// Sizes in elements, from the problem and its tiling alone.
struct Sizes {
  std::int64_t acc_size;  // bytes of the accumulation type
  std::int64_t chunk;     // tokens of a chunk
  std::int64_t num_chunks;
  std::int64_t chunk_padded;  // to whole panels
  std::int64_t state_tokens;  // tokens whose row state is held
  std::int64_t stats_tokens;  // tokens whose tile statistics are held
  std::int64_t num_tiles;
  std::int64_t hidden_padded;
  std::int64_t stat_planes;  // others [, entropy] [, weighted]
  Dtype kept_dtype;
  WeightSum weight_sum;
  std::int64_t sum_rows;      // rows of grad_weight's accumulator
  std::int64_t sum_cols;      // columns of grad_hidden's sums that are held
  std::int64_t weight_cols;   // columns of grad_weight's tile that are held
  std::int64_t lane_partial;  // elements of a lane's scratch in `partial` ...
  std::int64_t lane_weight;   // ... and in `grad_weight`
};
Sizes sizes_of(const Problem& problem, const Tiling& tiling, const Kept& kept);

inline Tiling tiling_of(const Plan& plan) { return {plan.method, plan.chunk, plan.slab}; }

// A step as the verbs see it.
template <typename Acc>
class Memory {
 public:
  explicit Memory(const Step& step)
      : step_(step), sizes_(sizes_of(step.problem(), tiling_of(*step.plan), step.kept)) {}

  const Sizes& sizes() const { return sizes_; }
  const Problem& problem() const { return step_.problem(); }
  const Inputs& inputs() const { return *step_.inputs; }
  const Outputs& outputs() const { return *step_.outputs; }
  int num_lanes() const { return step_.plan->caps.num_threads; }

  Totals& totals() const { return *at<Totals>(Slot::kReduction); }
  RowRecord* records(std::int64_t token) const {
    return at<RowRecord>(Slot::kRowState) + token % sizes_.state_tokens;
  }
  RowCoefficients<Acc>* coefficients(std::int64_t token) const {
    return at<RowCoefficients<Acc>>(Slot::kCoefficients) + token % sizes_.state_tokens;
  }
  // What a token's hidden row is multiplied with for grad_weight; 0: it must not be read.
  float* hidden_scale(std::int64_t token) const {
    auto* after = at<RowCoefficients<Acc>>(Slot::kCoefficients) + sizes_.state_tokens;
    return reinterpret_cast<float*>(after) + token % sizes_.state_tokens;
  }
  // Tile statistics, each (stats_tokens, num_tiles): the maximum, and planes of sums.
  Acc* tile_max() const { return at<Acc>(Slot::kTileMax); }
  Acc* stats(std::int64_t plane) const {
    return at<Acc>(Slot::kTileStats) + plane * sizes_.stats_tokens * sizes_.num_tiles;
  }
  std::int32_t* best_cols() const {
    return reinterpret_cast<std::int32_t*>(stats(sizes_.stat_planes));
  }
  const Acc* bias() const { return problem().has_bias() ? at<Acc>(Slot::kBias) : nullptr; }
  // The local class weights, and their sums by tile behind them.
  Acc* class_weights() const {
    return problem().has_class_weight() ? at<Acc>(Slot::kClassWeight) : nullptr;
  }
  double* tile_weights() const {
    const auto bytes = round_up(problem().vocab * static_cast<std::int64_t>(sizeof(Acc)), 8);
    return reinterpret_cast<double*>(at<std::byte>(Slot::kClassWeight) + bytes);
  }
  Acc* lane(int lane) const {
    const std::int64_t elems = std::max(sizes_.lane_partial, sizes_.lane_weight);
    return at<Acc>(Slot::kThreadScratch) + lane * elems;
  }
  // A row of the kept logits or exponentials; rows are step.kept.vocab elements long.
  std::byte* kept(std::int64_t row) const {
    return at<std::byte>(Slot::kKept) + row * step_.kept.vocab * size_of(sizes_.kept_dtype);
  }

  template <typename T>
  T* at(Slot slot) const {
    const SlotPlace& place = step_.plan->slots[static_cast<int>(slot)];
    note_use(place);
    return reinterpret_cast<T*>((place.saved ? step_.saved : step_.workspace) + place.offset);
  }

 private:
  void note_use(const SlotPlace& place) const {
    if (step_.report == nullptr) return;
    std::uint64_t& mark =
        place.saved ? step_.report->saved_high_water : step_.report->workspace_high_water;
    // Workers look slots up, too.
    const std::atomic_ref<std::uint64_t> shared(mark);
    const std::uint64_t end = place.offset + place.bytes;
    std::uint64_t seen = shared.load(std::memory_order_relaxed);
    while (seen < end && !shared.compare_exchange_weak(seen, end, std::memory_order_relaxed)) {
    }
  }

  const Step& step_;
  Sizes sizes_;
};

// The target of a token as a row of the whole head.
struct Target {
  std::int64_t row = 0;     // not checked here: scan_targets has done that
  bool is_ignored = false;  // or the token has no target, at the end of a shifted sequence
};
inline Target target_of(const Problem& p, const Inputs& inputs, std::int64_t token) {
  const Options& o = p.options;
  if (!has_target(token, p.tokens, o.shift, o.sequence_length)) return {0, true};
  const std::int64_t row = load_target(inputs.target, token + o.shift);
  return {row, row == o.ignore_index};
}

// Whether the problem's table rounds what it packs.
template <typename Acc>
bool packs_apart(const Problem& problem) {
  return kernels<Acc>(problem).terms == 2;
}

// Whether it packs kept exponentials, whose scale then acts on the products.
template <typename Acc>
bool packs_unscaled(const Step& step) {
  return packs_apart<Acc>(step.problem()) && step.kept.what != Keep::kLogits;
}

// The logit gradient of tokens x vocabulary rows, whose kept values start at row `kept_row`. The
// range of vocabulary rows is the whole of what each kept row holds; `part` narrows it to a tile.
template <typename Acc>
GradientBlock<Acc> gradient_block(const Memory<Acc>& memory, const Step& step, Range tokens,
                                  Range vocab, std::int64_t kept_row) {
  const Options& o = memory.problem().options;
  GradientBlock<Acc> block{};
  block.is_logits = step.kept.what == Keep::kLogits;
  block.is_apart = packs_apart<Acc>(memory.problem());
  block.is_unscaled = packs_unscaled<Acc>(step);
  block.kept = memory.kept(kept_row);
  block.kept_stride = step.kept.vocab;
  block.kept_dtype = memory.sizes().kept_dtype;
  block.rows = memory.coefficients(tokens.begin);
  block.tile_max = block.is_logits ? nullptr : memory.tile_max();
  block.tile_stride = block.is_logits ? 0 : memory.sizes().num_tiles;
  block.class_weight = memory.class_weights();
  block.map = {static_cast<Acc>(o.scale), static_cast<Acc>(o.softcap)};
  block.alpha = static_cast<Acc>(o.scale);
  block.num_tokens = tokens.size();
  block.first_col = vocab.begin;
  block.num_cols = vocab.size();
  block.kept_first_col = vocab.begin;
  return block;
}

// The same for some of its tokens, counted from its first, and columns of one tile.
template <typename Acc>
GradientBlock<Acc> part(GradientBlock<Acc> block, Range tokens, Range cols) {
  block.kept = static_cast<const std::byte*>(block.kept) +
               tokens.begin * block.kept_stride * size_of(block.kept_dtype);
  block.rows += tokens.begin;
  if (block.tile_max != nullptr) block.tile_max += tokens.begin * block.tile_stride;
  block.num_tokens = tokens.size();
  block.first_col = cols.begin;
  block.num_cols = cols.size();
  return block;
}

}  // namespace flce::cpu
