// SPDX-License-Identifier: Apache-2.0
// partial and logits: the product hidden . weight^T by tiles. A task owns a tile of the vocabulary:
// it packs that piece of the weight once, multiplies it with all tokens, and turns each tile of
// logits into statistics (and exponentials) while it is in cache.
#include <cmath>

#include "cpu/memory.hpp"
#include "cpu/threads.hpp"
#include "cpu/topk.hpp"
#include "cpu/verbs.hpp"

namespace flce::cpu {
namespace {

// What the tasks of one token block share.
template <typename Acc>
struct Block {
  const Memory<Acc>& memory;
  const Kernels<Acc>& kernel;
  const Step& step;
  Range tokens;
  Range vocab;
  const Acc* hidden;  // packed
  Keep keep;
  std::byte* kept;  // row of tokens.begin, column of vocab.begin; null: keep nothing
  bool wants_stats;
  Acc* max = nullptr;  // the tile statistics, row 0
  Acc* others = nullptr;
  Acc* entropy = nullptr;
  Acc* weighted = nullptr;
  std::int32_t* best = nullptr;
  const TopkLanes<Acc>* topk = nullptr;
};

template <typename Acc>
void find_planes(Block<Acc>& b) {
  const Problem& p = b.memory.problem();
  std::int64_t plane = 0;
  b.max = b.memory.tile_max();
  b.others = b.memory.stats(plane++);
  if (p.wants.entropy || p.grad_entropy_dtype != Dtype::kNone) b.entropy = b.memory.stats(plane++);
  if (p.options.label_smoothing != 0.0) b.weighted = b.memory.stats(plane++);
  if (p.wants.argmax || p.wants.num_correct) b.best = b.memory.best_cols();
}

template <typename Acc>
const Acc* pack_hidden(const Memory<Acc>& memory, const Kernels<Acc>& kernel, Range tokens) {
  const MatrixView& hidden = memory.inputs().hidden;
  Acc* packed = memory.template at<Acc>(Slot::kHiddenPacked);
  const std::int64_t group = kPackTokens;
  const std::int64_t words = kernel.words_of(hidden.cols);
  parallel_for(ceil_div(tokens.size(), group), memory.num_lanes(), [&](std::int64_t i, int) {
    const std::int64_t first = i * group;
    const std::int64_t at = (tokens.begin + first) * hidden.row_stride;
    const PackRows rows{static_cast<const std::byte*>(hidden.data) + at * size_of(hidden.dtype),
                        hidden.row_stride, std::min(group, tokens.size() - first), hidden.cols};
    kernel.pack_left(rows, hidden.dtype, packed + first * words);
  });
  return packed;
}

template <typename Acc>
TileRow<Acc> describe_row(const Block<Acc>& b, std::int64_t token, std::int64_t first_col,
                          std::int64_t cols) {
  const Problem& p = b.memory.problem();
  const Inputs& in = b.memory.inputs();
  TileRow<Acc> row{};
  row.cols = cols;
  row.bias = p.has_bias() ? b.memory.bias() + first_col : nullptr;
  row.class_weight = p.has_class_weight() ? b.memory.class_weights() + first_col : nullptr;
  row.map = {static_cast<Acc>(p.options.scale), static_cast<Acc>(p.options.softcap)};
  row.inverse_temperature = static_cast<Acc>(
      1.0 / (in.temperature ? load_real(in.temperature, token) : p.options.temperature));
  row.target = -1;
  row.wants_entropy = b.entropy != nullptr;
  row.wants_weighted = b.weighted != nullptr;
  row.wants_best = b.best != nullptr;
  return row;
}

template <typename Acc>
void keep_row(const Block<Acc>& b, TileRow<Acc>& row, std::int64_t i, std::int64_t col) {
  if (b.kept == nullptr) return;
  row.kept_dtype = b.memory.sizes().kept_dtype;
  std::byte* to = b.kept + (i * b.step.kept.vocab + col) * size_of(row.kept_dtype);
  if (b.keep == Keep::kExponentials) {
    row.exponentials = to;
  } else {
    row.logits = reinterpret_cast<Acc*>(to);
  }
}

// Rows [first, first + count) of the block against one tile of columns.
template <typename Acc>
void finish_tile(const Block<Acc>& b, std::int64_t first, std::int64_t count, std::int64_t col,
                 std::int64_t cols, Acc* tile, int lane) {
  const Problem& p = b.memory.problem();
  const std::int64_t num_tiles = b.memory.sizes().num_tiles;
  for (std::int64_t r = 0; r < count; ++r) {
    const std::int64_t i = first + r;
    const std::int64_t token = b.tokens.begin + i;
    const auto [target, is_ignored] = target_of(p, b.memory.inputs(), token);
    TileRow<Acc> row = describe_row(b, token, col, cols);
    row.tile = tile + r * kTileVocab;
    const std::int64_t local = target - p.shard.begin - col;
    if (!is_ignored && local >= 0 && local < cols) row.target = local;
    keep_row(b, row, i, col - b.vocab.begin);
    const TileResult<Acc> result = b.kernel.tile_row(row);
    if (!b.wants_stats) continue;
    const std::int64_t at = i * num_tiles + col / kTileVocab;
    b.max[at] = result.stats.max;
    b.others[at] = result.stats.others;
    if (b.entropy != nullptr) b.entropy[at] = result.stats.entropy;
    if (b.weighted != nullptr) b.weighted[at] = result.stats.weighted;
    if (b.best != nullptr) b.best[at] = static_cast<std::int32_t>(result.best_col);
    if (row.target >= 0) {
      b.memory.records(token)->stats.target = result.target;
      b.memory.records(token)->stats.target_slope = result.target_slope;
    }
    if (b.topk != nullptr && !is_ignored) b.topk->add(lane, i, row.tile, cols, col);
  }
}

template <typename Acc>
void run_tile(const Block<Acc>& b, std::int64_t tile_idx, int lane) {
  const MatrixView& weight = b.memory.inputs().weight;
  const std::int64_t col = b.vocab.begin + tile_idx * kTileVocab;
  const std::int64_t cols = std::min(kTileVocab, b.vocab.end - col);
  Acc* packed = b.memory.lane(lane);
  Acc* tile = packed + kTileVocab * weight.cols;
  const PackRows rows{
      static_cast<const std::byte*>(weight.data) + col * weight.row_stride * size_of(weight.dtype),
      weight.row_stride, cols, weight.cols};
  b.kernel.pack_right(rows, weight.dtype, packed);
  const std::int64_t words = b.kernel.words_of(weight.cols);
  for (std::int64_t first = 0; first < b.tokens.size(); first += kTileTokens) {
    const std::int64_t count = std::min(kTileTokens, b.tokens.size() - first);
    b.kernel.multiply(
        {count, cols, words, b.hidden + first * words, packed, tile, kTileVocab, false});
    finish_tile(b, first, count, col, cols, tile, lane);
  }
}

// The tiles of one token, in the order of the vocabulary -> its RowStats. Everything relative to
// the row's maximum, so each tile costs one exponential.
template <typename Acc>
void sum_tiles(const Block<Acc>& b, std::int64_t i) {
  const Problem& p = b.memory.problem();
  const std::int64_t num_tiles = b.memory.sizes().num_tiles;
  const std::int64_t row = i * num_tiles;
  RowStats& stats = b.memory.records(b.tokens.begin + i)->stats;
  for (std::int64_t t = 0; t < num_tiles; ++t) stats.max = std::fmax(stats.max, b.max[row + t]);
  for (std::int64_t t = 0; t < num_tiles; ++t) {
    const double distance = b.max[row + t] - stats.max;
    const double others = b.others[row + t];
    if (others != 0.0) {
      const double factor = std::exp(distance);
      stats.others += others * factor;
      if (b.entropy != nullptr) {
        stats.entropy += factor * (b.entropy[row + t] + others * distance);
      }
    }
    if (b.weighted != nullptr) {
      const std::int64_t cols = std::min(kTileVocab, p.vocab - t * kTileVocab);
      const double weight =
          p.has_class_weight() ? b.memory.tile_weights()[t] : static_cast<double>(cols);
      stats.weighted += (weight == 0.0 ? 0.0 : weight * b.max[row + t]) - b.weighted[row + t];
    }
    if (b.best != nullptr && b.best[row + t] >= 0 &&
        (stats.best_index < 0 || b.max[row + t] > stats.best)) {
      stats.best = b.max[row + t];
      stats.best_index = p.shard.begin + t * kTileVocab + b.best[row + t];
    }
  }
}

template <typename Acc>
void run_block(const Memory<Acc>& memory, const Step& step, Range tokens, Keep keep,
               std::int64_t kept_row) {
  const Problem& p = memory.problem();
  const Kernels<Acc>& kernel = kernels<Acc>(p);
  Block<Acc> b{memory,       kernel,
               step,         tokens,
               {0, p.vocab}, pack_hidden(memory, kernel, tokens),
               keep,         keep == Keep::kNothing ? nullptr : memory.kept(kept_row),
               true};
  find_planes(b);
  const TopkLanes<Acc> topk(memory);
  if (p.wants.topk > 0) {
    topk.clear();
    b.topk = &topk;
  }
  for (std::int64_t i = tokens.begin; i < tokens.end; ++i) *memory.records(i) = RowRecord{};
  parallel_for(ceil_div(p.vocab, kTileVocab), memory.num_lanes(),
               [&](std::int64_t tile, int lane) { run_tile(b, tile, lane); });
  parallel_for(tokens.size(), memory.num_lanes(), [&](std::int64_t i, int) {
    sum_tiles(b, i);
    if (b.topk != nullptr) topk.write(i, tokens.begin + i);
  });
}

}  // namespace

void partial(const Step& step, Range tokens, Keep keep, std::int64_t kept_row) {
  visit_accumulation(step.problem().dtype, [&]<typename Acc>(Type<Acc>) {
    const Memory<Acc> memory(step);
    const Pieces pieces(tokens.size(), memory.sizes().stats_tokens);
    for (std::int64_t i = 0; i < pieces.count(); ++i) {
      const Range piece = pieces[i];
      run_block(memory, step, {tokens.begin + piece.begin, tokens.begin + piece.end}, keep,
                kept_row + piece.begin);
    }
  });
}

void logits(const Step& step, Range tokens, Range vocab) {
  visit_accumulation(step.problem().dtype, [&]<typename Acc>(Type<Acc>) {
    const Memory<Acc> memory(step);
    const Kernels<Acc>& kernel = kernels<Acc>(step.problem());
    const Pieces pieces(tokens.size(), memory.sizes().stats_tokens);
    for (std::int64_t i = 0; i < pieces.count(); ++i) {
      const Range piece{tokens.begin + pieces[i].begin, tokens.begin + pieces[i].end};
      const Block<Acc> b{memory,        kernel,
                         step,          piece,
                         vocab,         pack_hidden(memory, kernel, piece),
                         Keep::kLogits, memory.kept(pieces[i].begin),
                         false};
      parallel_for(ceil_div(vocab.size(), kTileVocab), memory.num_lanes(),
                   [&](std::int64_t tile, int lane) { run_tile(b, tile, lane); });
    }
  });
}

}  // namespace flce::cpu
