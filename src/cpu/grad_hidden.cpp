// SPDX-License-Identifier: Apache-2.0
// grad_hidden = logit gradient . weight. The sum runs over the vocabulary in blocks; a block of the
// gradient (made from what was kept, while packing) and of the weight are packed by all threads and
// then multiplied tile by tile.
#include "cpu/memory.hpp"
#include "cpu/threads.hpp"
#include "cpu/verbs.hpp"

namespace flce::cpu {
namespace {

template <typename Acc>
struct Product {
  const Memory<Acc>& memory;
  const Kernels<Acc>& kernel;
  GradientBlock<Acc> gradient;  // all tokens and columns of the verb
  Range tokens;
  Acc* gradient_packed;
  Acc* weight_packed;
  Acc* sums;  // (tokens, hidden_padded)
};

// One task of packing: either some tokens of the gradient or some columns of the weight.
template <typename Acc>
void pack_task(const Product<Acc>& product, Range block, std::int64_t task,
               std::int64_t num_gradient_tasks) {
  if (task < num_gradient_tasks) {
    const std::int64_t first = task * kRowPad;
    GradientBlock<Acc> part = product.gradient;
    part.kept = static_cast<const std::byte*>(part.kept) +
                first * part.kept_stride * size_of(part.kept_dtype);
    part.rows += first;
    part.tile_max += first * part.tile_stride;
    part.num_tokens = std::min(kRowPad, product.tokens.size() - first);
    part.first_col = block.begin;
    part.num_cols = block.size();
    product.kernel.pack_gradient_by_token(part, product.gradient_packed + first * block.size());
    return;
  }
  const MatrixView& weight = product.memory.inputs().weight;
  const std::int64_t col = (task - num_gradient_tasks) * kStrip;
  const std::int64_t at = block.begin * weight.row_stride + col;
  const PackCols cols{static_cast<const std::byte*>(weight.data) + at * size_of(weight.dtype),
                      weight.row_stride, block.size(), std::min(kStrip, weight.cols - col),
                      nullptr};
  product.kernel.pack_cols(cols, weight.dtype, product.weight_packed + col * block.size());
}

template <typename Acc>
void multiply_task(const Product<Acc>& product, std::int64_t depth, std::int64_t task, bool add) {
  const std::int64_t hidden = product.memory.inputs().weight.cols;
  const std::int64_t hidden_padded = product.memory.sizes().hidden_padded;
  const std::int64_t num_strips = ceil_div(hidden, kStrip);
  const std::int64_t row = task / num_strips * kTileTokens;
  const std::int64_t col = task % num_strips * kStrip;
  const std::int64_t rows = std::min(kTileTokens, product.tokens.size() - row);
  const std::int64_t cols = std::min(kStrip, hidden - col);
  product.kernel.multiply(
      {round_up(rows, product.kernel.left_width), round_up(cols, product.kernel.right_width), depth,
       product.gradient_packed + row * depth, product.weight_packed + col * depth,
       product.sums + row * hidden_padded + col, hidden_padded, add});
}

// Rounds the sums into the caller's memory; rows without a gradient become zero by selection.
template <typename Acc>
void store(const Product<Acc>& product) {
  const MatrixView& out = product.memory.outputs().grad_hidden;
  const std::int64_t stride = product.memory.sizes().hidden_padded;
  visit_dtype(out.dtype, [&]<typename T>(Type<T>) {
    parallel_for(product.tokens.size(), product.memory.num_lanes(), [&](std::int64_t i, int) {
      T* to = static_cast<T*>(out.data) + (product.tokens.begin + i) * out.row_stride;
      const Acc* from = product.sums + i * stride;
      const bool active = product.gradient.rows[i].active;
      for (std::int64_t h = 0; h < out.cols; ++h) to[h] = round_to<T>(active ? from[h] : Acc(0));
    });
  });
}

template <typename Acc>
void run(const Step& step, Range tokens, Range vocab, std::int64_t kept_row, Turn turn) {
  const Memory<Acc> memory(step);
  const Sizes& sizes = memory.sizes();
  const bool sums_over_slabs = step.plan->method == Method::kRecompute;
  // Sums over slabs stand at their token. A chunk's last panel reaches into the next chunk's rows,
  // where it adds zeros (or, on the first slab, writes what the next chunk then overwrites).
  const std::int64_t first_row = sums_over_slabs ? tokens.begin : 0;
  const Product<Acc> product{
      memory,
      kernels<Acc>(),
      gradient_block(memory, step, tokens, vocab, kept_row),
      tokens,
      memory.template at<Acc>(Slot::kGradientPacked),
      memory.template at<Acc>(Slot::kWeightPacked),
      memory.template at<Acc>(Slot::kGradHiddenAcc) + first_row * sizes.hidden_padded};
  const std::int64_t num_strips = ceil_div(step.problem().hidden, kStrip);
  const std::int64_t num_groups = ceil_div(tokens.size(), kRowPad);
  const std::int64_t num_tiles = ceil_div(tokens.size(), kTileTokens) * num_strips;
  const Pieces blocks(vocab.size(), kSumBlock);
  for (std::int64_t i = 0; i < blocks.count(); ++i) {
    const Range block{vocab.begin + blocks[i].begin, vocab.begin + blocks[i].end};
    parallel_for(num_groups + num_strips, memory.num_lanes(),
                 [&](std::int64_t task, int) { pack_task(product, block, task, num_groups); });
    const bool add = i > 0 || !turn.first;
    parallel_for(num_tiles, memory.num_lanes(),
                 [&](std::int64_t task, int) { multiply_task(product, block.size(), task, add); });
  }
  if (turn.last) store(product);
}

}  // namespace

void grad_hidden(const Step& step, Range tokens, Range vocab, std::int64_t kept_row, Turn turn) {
  visit_accumulation(step.problem().dtype, [&]<typename Acc>(Type<Acc>) {
    run<Acc>(step, tokens, vocab, kept_row, turn);
  });
}

}  // namespace flce::cpu
