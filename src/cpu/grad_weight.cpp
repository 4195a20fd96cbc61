// SPDX-License-Identifier: Apache-2.0
// grad_weight = logit gradient^T . hidden, and grad_bias, the gradient's sum over tokens. A task
// owns a tile of the vocabulary: it makes that piece of the gradient (from what was kept, while
// packing) and all of its rows of grad_weight.
//
// Over several chunks the sum is kept exactly as wide as the accumulation type: in the caller's
// buffer if that has the type; for bf16 split, the high half of the f32 sum in the caller's buffer
// and the low half in the workspace; else in the workspace.
#include "cpu/memory.hpp"
#include "cpu/threads.hpp"
#include "cpu/verbs.hpp"

namespace flce::cpu {
namespace {

template <typename Acc>
struct Product {
  const Memory<Acc>& memory;
  const Step& step;
  const Kernels<Acc>& kernel;
  GradientBlock<Acc> gradient;
  Range tokens;
  Range vocab;
  Turn turn;
  const Acc* hidden_packed;  // blocks of kTokenBlock tokens, one behind the other; or null
};

template <typename Acc>
const Acc* pack_hidden(const Memory<Acc>& memory, const Kernels<Acc>& kernel, Range tokens) {
  const MatrixView& hidden = memory.inputs().hidden;
  const std::int64_t padded = memory.sizes().hidden_padded;
  Acc* packed = memory.template at<Acc>(Slot::kHiddenByToken);
  const Pieces blocks(tokens.size(), kTokenBlock);
  const std::int64_t num_strips = ceil_div(hidden.cols, kStrip);
  parallel_for(blocks.count() * num_strips, memory.num_lanes(), [&](std::int64_t task, int) {
    const Range block = blocks[task / num_strips];
    const std::int64_t col = task % num_strips * kStrip;
    const std::int64_t token = tokens.begin + block.begin;
    const std::int64_t at = token * hidden.row_stride + col;
    const PackCols cols{static_cast<const std::byte*>(hidden.data) + at * size_of(hidden.dtype),
                        hidden.row_stride, block.size(), std::min(kStrip, hidden.cols - col),
                        memory.skip(token)};
    kernel.pack_cols(cols, hidden.dtype, packed + block.begin * padded + col * block.size());
  });
  return packed;
}

// The f32 sum whose high half is `high` and whose low half is `low`.
float join(BF16 high, std::uint16_t low) {
  return detail::float_of(std::uint32_t{high.bits} << 16 | low);
}

// Adds rows of products to the running sums; the last turn rounds to the output's type.
template <typename Acc, typename T>
void add_row(const Product<Acc>& product, const Acc* values, T* out, void* sums) {
  const Problem& p = product.step.problem();
  const Turn turn = product.turn;
  const WeightSum kind = product.memory.sizes().weight_sum;
  const bool adds_out = turn.first ? p.accumulate_grad_weight : kind == WeightSum::kDirect;
  for (std::int64_t h = 0; h < p.hidden; ++h) {
    Acc sum = values[h];
    if (adds_out) sum += widen(out[h]);
    if (kind == WeightSum::kDirect) {
      out[h] = round_to<T>(sum);
      continue;
    }
    if constexpr (std::is_same_v<T, BF16>) {
      auto* low = static_cast<std::uint16_t*>(sums);
      if (!turn.first) sum += join(out[h], low[h]);
      if (turn.last) {
        out[h] = round_bf16(static_cast<float>(sum));
      } else {
        const std::uint32_t bits = detail::bits_of(static_cast<float>(sum));
        out[h] = {static_cast<std::uint16_t>(bits >> 16)};
        low[h] = static_cast<std::uint16_t>(bits);
      }
    } else {
      Acc* running = static_cast<Acc*>(sums);
      if (!turn.first) sum += running[h];
      if (turn.last) {
        out[h] = round_to<T>(sum);
      } else {
        running[h] = sum;
      }
    }
  }
}

template <typename Acc>
void store_tile(const Product<Acc>& product, Range cols, const Acc* tile) {
  const MatrixView& out = product.memory.outputs().grad_weight;
  const Sizes& sizes = product.memory.sizes();
  const std::int64_t half = sizes.weight_sum == WeightSum::kSplit ? 2 : sizes.acc_size;
  std::byte* sums = sizes.weight_sum == WeightSum::kDirect
                        ? nullptr
                        : product.memory.template at<std::byte>(Slot::kGradWeightAcc);
  visit_dtype(out.dtype, [&]<typename T>(Type<T>) {
    for (std::int64_t j = cols.begin; j < cols.end; ++j) {
      const std::int64_t sum_row = j - product.vocab.begin;
      std::byte* row = sums == nullptr ? nullptr : sums + sum_row * out.cols * half;
      add_row<Acc, T>(product, tile + (j - cols.begin) * sizes.hidden_padded,
                      static_cast<T*>(out.data) + j * out.row_stride, row);
    }
  });
}

void store_bias(const Step& step, Turn turn, Range cols, const double* added, double* sums) {
  const VectorView& out = step.outputs->grad_bias;
  for (std::int64_t j = cols.begin; j < cols.end; ++j) {
    sums[j] = (turn.first ? 0.0 : sums[j]) + added[j - cols.begin];
    if (!turn.last) continue;
    store_real(out, j, sums[j] + (step.problem().accumulate_grad_bias ? load_real(out, j) : 0.0));
  }
}

template <typename Acc>
void run_tile(const Product<Acc>& product, std::int64_t tile_idx, int lane) {
  const Memory<Acc>& memory = product.memory;
  const Problem& p = memory.problem();
  const Sizes& sizes = memory.sizes();
  const std::int64_t first = product.vocab.begin + tile_idx * kTileVocab;
  const Range cols{first, std::min(first + kTileVocab, product.vocab.end)};
  Acc* packed = memory.lane(lane);
  Acc* tile = packed + kTileVocab * std::min(sizes.chunk, kTokenBlock);
  double bias_sums[kTileVocab] = {};
  const Pieces blocks(product.tokens.size(), kTokenBlock);
  for (std::int64_t i = 0; i < blocks.count(); ++i) {
    const Range block = blocks[i];
    GradientBlock<Acc> part = product.gradient;
    part.kept = static_cast<const std::byte*>(part.kept) +
                block.begin * part.kept_stride * size_of(part.kept_dtype);
    part.rows += block.begin;
    part.tile_max += block.begin * part.tile_stride;
    part.num_tokens = block.size();
    part.first_col = cols.begin;
    part.num_cols = cols.size();
    product.kernel.pack_gradient_by_vocab(part, packed, p.wants.grad_bias ? bias_sums : nullptr);
    if (product.hidden_packed == nullptr) continue;
    product.kernel.multiply({round_up(cols.size(), product.kernel.left_width),
                             round_up(p.hidden, product.kernel.right_width), block.size(), packed,
                             product.hidden_packed + block.begin * sizes.hidden_padded, tile,
                             sizes.hidden_padded, i > 0});
  }
  if (p.wants.grad_weight) store_tile(product, cols, tile);
  if (p.wants.grad_bias) {
    store_bias(product.step, product.turn, cols, bias_sums,
               memory.template at<double>(Slot::kGradBiasAcc));
  }
}

}  // namespace

void grad_weight(const Step& step, Range tokens, Range vocab, std::int64_t kept_row, Turn turn) {
  visit_accumulation(step.problem().dtype, [&]<typename Acc>(Type<Acc>) {
    const Memory<Acc> memory(step);
    const Kernels<Acc>& kernel = kernels<Acc>();
    const Product<Acc> product{
        memory, step,
        kernel, gradient_block(memory, step, tokens, vocab, kept_row),
        tokens, vocab,
        turn,   step.problem().wants.grad_weight ? pack_hidden(memory, kernel, tokens) : nullptr};
    parallel_for(ceil_div(vocab.size(), kTileVocab), memory.num_lanes(),
                 [&](std::int64_t tile, int lane) { run_tile(product, tile, lane); });
  });
}

}  // namespace flce::cpu
