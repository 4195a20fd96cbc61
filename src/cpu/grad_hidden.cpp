// SPDX-License-Identifier: Apache-2.0
// grad_hidden = logit gradient . weight. The sum runs over the vocabulary in blocks. Packing a
// block (the gradient is made from what was kept, while packing) and multiplying it are tasks of
// one queue, in the order pack 0, pack 1, multiply 0, pack 2, multiply 1, ...: what a task waits
// for was queued a whole stage earlier and is done as a rule, so no thread stands at a barrier.
#include <array>
#include <atomic>

#include "cpu/memory.hpp"
#include "cpu/threads.hpp"
#include "cpu/verbs.hpp"

namespace flce::cpu {
namespace {

// One strip of columns of grad_hidden.
template <typename Acc>
struct Product {
  const Memory<Acc>& memory;
  const Kernels<Acc>& kernel;
  GradientBlock<Acc> gradient;  // all tokens and columns of the verb
  Range tokens;
  Range vocab;
  Range hidden;  // the strip
  Acc* sums;     // (tokens, strip)
  std::int64_t sums_stride;
  bool adds;  // to what is in sums

  // Packed operands of block `i`.
  Acc* gradient_packed(std::int64_t i) const {
    const Sizes& sizes = memory.sizes();
    return memory.template at<Acc>(Slot::kGradientPacked) +
           i % kSumBuffers * sizes.chunk_padded * kSumBlock;
  }
  Acc* weight_packed(std::int64_t i) const {
    return memory.template at<Acc>(Slot::kWeightPacked) +
           i % kSumBuffers * kSumBlock * memory.sizes().sum_cols;
  }
  Range block(std::int64_t i) const {
    const Range rows = Pieces(vocab.size(), kSumBlock)[i];
    return {vocab.begin + rows.begin, vocab.begin + rows.end};
  }
};

template <typename Acc>
void pack_gradient(const Product<Acc>& product, std::int64_t i, std::int64_t task) {
  const Range rows = Pieces(product.tokens.size(), kPackTokens)[task];
  const Range block = product.block(i);
  if (block.size() == 0) return;
  product.kernel.pack_gradient_by_token(
      part(product.gradient, rows, block),
      product.gradient_packed(i) + rows.begin * product.kernel.words_of(block.size()));
}

template <typename Acc>
void pack_weight(const Product<Acc>& product, std::int64_t i, std::int64_t task) {
  const MatrixView& weight = product.memory.inputs().weight;
  const Range cols = Pieces(product.hidden.size(), kStrip)[task];
  const Range block = product.block(i);
  const std::int64_t at = block.begin * weight.row_stride + product.hidden.begin + cols.begin;
  product.kernel.pack_right_cols(
      {static_cast<const std::byte*>(weight.data) + at * size_of(weight.dtype), weight.row_stride,
       block.size(), cols.size(), nullptr},
      weight.dtype, product.weight_packed(i) + cols.begin * product.kernel.words_of(block.size()));
}

template <typename Acc>
void multiply(const Product<Acc>& product, std::int64_t i, std::int64_t task) {
  // Neighbouring tasks share a strip of the weight, which stays in the second-level cache.
  const Pieces groups(product.tokens.size(), kSumTokens);
  const Range rows = groups[task % groups.count()];
  const Range cols = Pieces(product.hidden.size(), kStrip)[task / groups.count()];
  const std::int64_t words = product.kernel.words_of(product.block(i).size());
  product.kernel.multiply({rows.size(), cols.size(), words,
                           product.gradient_packed(i) + rows.begin * words,
                           product.weight_packed(i) + cols.begin * words,
                           product.sums + rows.begin * product.sums_stride + cols.begin,
                           product.sums_stride, i > 0 || product.adds});
}

// Tasks that are done, of all blocks together: blocks finish in order.
class Progress {
 public:
  void add() { done_.fetch_add(1, std::memory_order_release); }
  void wait_for(std::int64_t count) const {
    for (int spins = 0; done_.load(std::memory_order_acquire) < count; ++spins) relax(spins);
  }

 private:
  std::atomic<std::int64_t> done_{0};
};

// Runs the queue. A stage is the packing of one block and the multiplication of the one before.
template <typename Acc>
void sum_blocks(const Product<Acc>& product) {
  const std::int64_t num_blocks = Pieces(product.vocab.size(), kSumBlock).count();
  const std::int64_t num_strips = ceil_div(product.hidden.size(), kStrip);
  const std::int64_t num_groups = ceil_div(product.tokens.size(), kPackTokens);
  const std::int64_t num_packs = num_groups + num_strips;
  const std::int64_t num_products = ceil_div(product.tokens.size(), kSumTokens) * num_strips;
  const std::int64_t per_stage = num_packs + num_products;
  Progress packed;
  Progress multiplied;
  // Before stage 0 the first block is packed: its place in the queue is that of stage -1.
  const std::int64_t count = num_packs + num_blocks * per_stage;
  parallel_for(count, product.memory.num_lanes(), [&](std::int64_t index, int) {
    const std::int64_t stage = index < num_packs ? -1 : (index - num_packs) / per_stage;
    const std::int64_t task = index < num_packs ? index : (index - num_packs) % per_stage;
    if (task < num_packs) {
      const std::int64_t i = stage + 1;
      if (i == num_blocks) return;
      packed.wait_for(i * num_packs);
      multiplied.wait_for((i - kSumBuffers + 1) * num_products);
      if (task < num_groups) {
        pack_gradient(product, i, task);
      } else {
        pack_weight(product, i, task - num_groups);
      }
      packed.add();
    } else {
      packed.wait_for((stage + 1) * num_packs);
      multiplied.wait_for(stage * num_products);
      multiply(product, stage, task - num_packs);
      multiplied.add();
    }
  });
}

// out = scale * sum + t * weight row of the target (both by row; rows without a gradient become
// zero by selection), rounded once.
template <typename Acc, typename T, typename W>
void store_row(const Product<Acc>& product, std::int64_t i, const W* weight, T* out) {
  const RowCoefficients<Acc>& row = product.gradient.rows[i];
  const Acc* sums = product.sums + i * product.sums_stride;
  const std::int64_t count = product.hidden.size();
  if (!row.active) {
    for (std::int64_t h = 0; h < count; ++h) out[h] = round_to<T>(0.0);
  } else if (!product.gradient.is_apart) {
    for (std::int64_t h = 0; h < count; ++h) out[h] = round_to<T>(sums[h]);
  } else {
    const Acc scale = product.gradient.is_unscaled ? row.scale * product.gradient.alpha : Acc(1);
    const Acc target = row.target >= 0 ? row.t * product.gradient.alpha : Acc(0);
    for (std::int64_t h = 0; h < count; ++h) {
      const Acc others = scale * sums[h];
      out[h] = round_to<T>(row.target >= 0 ? others + target * Acc(widen(weight[h])) : others);
    }
  }
}

template <typename Acc>
void store(const Product<Acc>& product) {
  const MatrixView& out = product.memory.outputs().grad_hidden;
  const MatrixView& weight = product.memory.inputs().weight;
  visit_dtype(out.dtype, [&]<typename T>(Type<T>) {
    parallel_for(product.tokens.size(), product.memory.num_lanes(), [&](std::int64_t i, int) {
      const std::int64_t target = product.gradient.rows[i].target;
      const std::int64_t at = std::max<std::int64_t>(target, 0) * weight.row_stride;
      T* to = static_cast<T*>(out.data) + (product.tokens.begin + i) * out.row_stride +
              product.hidden.begin;
      visit_dtype(weight.dtype, [&]<typename W>(Type<W>) {
        store_row(product, i, static_cast<const W*>(weight.data) + at + product.hidden.begin, to);
      });
    });
  });
}

template <typename Acc>
void run(const Step& step, Range tokens, Range vocab, std::int64_t kept_row, Turn turn) {
  const Memory<Acc> memory(step);
  const Sizes& sizes = memory.sizes();
  const GradientBlock<Acc> gradient = gradient_block(memory, step, tokens, vocab, kept_row);
  Acc* sums = memory.template at<Acc>(Slot::kGradHiddenAcc);
  const bool sums_over_slabs = step.plan->method == Method::kRecompute;
  const Pieces strips(step.problem().hidden, sizes.sum_cols);
  for (std::int64_t i = 0; i < strips.count(); ++i) {
    // Sums over slabs stand at their token and column. A chunk's last panel reaches into the next
    // chunk's rows, where it adds zeros (or, on the first slab, writes what the next chunk then
    // overwrites).
    const std::int64_t stride = sums_over_slabs ? sizes.hidden_padded : sizes.sum_cols;
    Acc* at = sums_over_slabs ? sums + tokens.begin * stride + strips[i].begin : sums;
    const Product<Acc> product{
        memory,     kernels<Acc>(step.problem()), gradient, tokens, vocab, strips[i], at, stride,
        !turn.first};
    sum_blocks(product);
    if (turn.last) store(product);
  }
}

}  // namespace

void grad_hidden(const Step& step, Range tokens, Range vocab, std::int64_t kept_row, Turn turn) {
  visit_accumulation(step.problem().dtype, [&]<typename Acc>(Type<Acc>) {
    run<Acc>(step, tokens, vocab, kept_row, turn);
  });
}

}  // namespace flce::cpu
