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
                        memory.hidden_scale(token)};
    kernel.pack_right_cols(cols, hidden.dtype,
                           packed + block.begin * padded + col * kernel.words_of(block.size()));
  });
  return packed;
}

// The f32 sum whose high half is `high` and whose low half is `low`.
float join(BF16 high, std::uint16_t low) {
  return detail::float_of(std::uint32_t{high.bits} << 16 | low);
}

// Adds to a sum that is kept in two halves, and joins them for good in the last turn.
template <typename Acc>
void add_split(Turn turn, bool adds_out, const Acc* values, std::int64_t count, BF16* high,
               std::uint16_t* low) {
  for (std::int64_t h = 0; h < count; ++h) {
    auto sum = static_cast<float>(values[h]);
    if (adds_out) sum += widen(high[h]);
    if (!turn.first) sum += join(high[h], low[h]);
    const std::uint32_t bits = detail::bits_of(sum);
    high[h] = turn.last ? round_bf16(sum) : BF16{static_cast<std::uint16_t>(bits >> 16)};
    low[h] = static_cast<std::uint16_t>(bits);
  }
}

// Adds rows of products to the running sums; the last turn rounds to the output's type. `out` and
// `sums` stand at the strip's first column.
template <typename Acc, typename T>
void add_row(const Product<Acc>& product, const Acc* values, std::int64_t count, T* out,
             void* sums) {
  const Turn turn = product.turn;
  const WeightSum kind = product.memory.sizes().weight_sum;
  const bool adds_out =
      turn.first ? product.step.problem().accumulate_grad_weight : kind == WeightSum::kDirect;
  if (kind == WeightSum::kDirect && !adds_out) {
    for (std::int64_t h = 0; h < count; ++h) out[h] = round_to<T>(values[h]);
  } else if (kind == WeightSum::kDirect) {
    for (std::int64_t h = 0; h < count; ++h) out[h] = round_to<T>(values[h] + Acc(widen(out[h])));
  } else if constexpr (std::is_same_v<T, BF16>) {
    add_split(turn, adds_out, values, count, out, static_cast<std::uint16_t*>(sums));
  } else {
    Acc* running = static_cast<Acc*>(sums);
    for (std::int64_t h = 0; h < count; ++h) {
      Acc sum = values[h];
      if (adds_out) sum += Acc(widen(out[h]));
      if (!turn.first) sum += running[h];
      if (turn.last) {
        out[h] = round_to<T>(sum);
      } else {
        running[h] = sum;
      }
    }
  }
}

// Asks for a later row of the output, which is no stream that a processor would foresee.
template <typename T>
void prefetch_row(const T* row, Range strip) {
  constexpr std::int64_t kLine = 64 / sizeof(T);
  for (std::int64_t h = strip.begin; h < strip.end; h += kLine) __builtin_prefetch(row + h, 1);
}

// Vocabulary rows x columns of grad_weight, from the tile that holds them.
template <typename Acc>
void store_strip(const Product<Acc>& product, Range rows, Range strip, const Acc* tile) {
  const MatrixView& out = product.memory.outputs().grad_weight;
  const Sizes& sizes = product.memory.sizes();
  const std::int64_t half = sizes.weight_sum == WeightSum::kSplit ? 2 : sizes.acc_size;
  std::byte* sums = sizes.weight_sum == WeightSum::kDirect
                        ? nullptr
                        : product.memory.template at<std::byte>(Slot::kGradWeightAcc);
  visit_dtype(out.dtype, [&]<typename T>(Type<T>) {
    for (std::int64_t j = rows.begin; j < rows.end; ++j) {
      prefetch_row(static_cast<T*>(out.data) + std::min(j + 4, rows.end - 1) * out.row_stride,
                   strip);
      const std::int64_t at = (j - product.vocab.begin) * out.cols + strip.begin;
      add_row<Acc, T>(product, tile + (j - rows.begin) * sizes.weight_cols, strip.size(),
                      static_cast<T*>(out.data) + j * out.row_stride + strip.begin,
                      sums == nullptr ? nullptr : sums + at * half);
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

// The targets' entries, where they are apart from the packed gradient.
template <typename Acc>
void add_targets(const Product<Acc>& product, Range block, Range rows, Range strip, Acc* tile) {
  const MatrixView& hidden = product.memory.inputs().hidden;
  const std::int64_t stride = product.memory.sizes().weight_cols;
  for (std::int64_t i = block.begin; i < block.end; ++i) {
    const RowCoefficients<Acc>& row = product.gradient.rows[i];
    if (!row.active || row.target < rows.begin || row.target >= rows.end) continue;
    const Acc t = row.t * product.gradient.alpha;
    Acc* to = tile + (row.target - rows.begin) * stride;
    visit_dtype(hidden.dtype, [&]<typename T>(Type<T>) {
      const T* from = static_cast<const T*>(hidden.data) +
                      (product.tokens.begin + i) * hidden.row_stride + strip.begin;
      for (std::int64_t h = 0; h < strip.size(); ++h) to[h] += t * Acc(widen(from[h]));
    });
  }
}

template <typename Acc>
void add_target_bias(const Product<Acc>& product, Range block, Range rows, double* sums) {
  for (std::int64_t i = block.begin; i < block.end; ++i) {
    const RowCoefficients<Acc>& row = product.gradient.rows[i];
    if (!row.active || row.target < rows.begin || row.target >= rows.end) continue;
    sums[row.target - rows.begin] += row.t;
  }
}

// A tile of vocabulary rows. The columns of the product are made strip by strip; where the tokens
// take several blocks, the tile holds all columns until the last block.
template <typename Acc>
void run_tile(const Product<Acc>& product, std::int64_t tile_idx, int lane) {
  const Memory<Acc>& memory = product.memory;
  const Problem& p = memory.problem();
  const Sizes& sizes = memory.sizes();
  const std::int64_t first = product.vocab.begin + tile_idx * kTileVocab;
  const Range rows{first, std::min(first + kTileVocab, product.vocab.end)};
  Acc* packed = memory.lane(lane);
  Acc* tile = packed + kTileVocab * round_up(std::min(sizes.chunk, kTokenBlock), 2);
  double bias_sums[kTileVocab] = {};
  const Pieces blocks(product.tokens.size(), kTokenBlock);
  const Pieces strips(p.hidden, kWeightCols);
  for (std::int64_t i = 0; i < blocks.count(); ++i) {
    const Range block = blocks[i];
    product.kernel.pack_gradient_by_vocab(part(product.gradient, block, rows), packed,
                                          p.wants.grad_bias ? bias_sums : nullptr);
    if (p.wants.grad_bias && product.gradient.is_apart) {
      add_target_bias(product, block, rows, bias_sums);
    }
    if (product.hidden_packed == nullptr) continue;
    const std::int64_t words = product.kernel.words_of(block.size());
    for (std::int64_t s = 0; s < strips.count(); ++s) {
      const Range strip = strips[s];
      Acc* c = sizes.weight_cols < sizes.hidden_padded ? tile : tile + strip.begin;
      product.kernel.multiply(
          {rows.size(), strip.size(), words, packed,
           product.hidden_packed + block.begin * sizes.hidden_padded + strip.begin * words, c,
           sizes.weight_cols, i > 0});
      if (product.gradient.is_apart) add_targets(product, block, rows, strip, c);
      if (blocks.is_last(i)) store_strip(product, rows, strip, c);
    }
  }
  if (p.wants.grad_bias) {
    store_bias(product.step, product.turn, rows, bias_sums,
               memory.template at<double>(Slot::kGradBiasAcc));
  }
}

}  // namespace

void grad_weight(const Step& step, Range tokens, Range vocab, std::int64_t kept_row, Turn turn) {
  visit_accumulation(step.problem().dtype, [&]<typename Acc>(Type<Acc>) {
    const Memory<Acc> memory(step);
    const Kernels<Acc>& kernel = kernels<Acc>(step.problem());
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
