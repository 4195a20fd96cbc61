// SPDX-License-Identifier: Apache-2.0
// Which products and kernels, in which order (docs/kernels/hopper.md).
#include "cuda/run/odds.hpp"

#include <algorithm>

#include "core/check.hpp"
#include "core/int_math.hpp"
#include "cuda/run/current.hpp"
#include "cuda/run/odds_call.hpp"
#include "cuda/run/products.hpp"
#include "kernels/hopper/tile_sizes.hpp"

namespace flce::cuda::odds {
namespace {

using namespace hopper;

Gemm gemm_of(const Odds& odds, Product product) {
  Gemm g;
  g.product = product;
  g.in = Dtype::kBF16;
  g.out = Dtype::kF32;
  g.scratch = odds.memory().scratch();
  g.scratch_bytes = odds.memory().scratch_bytes();
  return g;
}

// Logits of some rows of the vocabulary, evenly spread.
void multiply_sample(const Odds& odds, const Matrix& x, Range tokens) {
  const Matrix w = odds.weight(0);
  Gemm g = gemm_of(odds, Product::kPlain);
  g.m = tokens.size();
  g.n = odds.sizes().sample_cols;
  g.k = odds.problem().hidden;
  g.a = {x.data, x.row_stride, false};
  g.b = {w.data, odds.sample_step() * w.row_stride, true};
  g.d = odds.sample();
  g.d_row_stride = g.n;
  run_gemm(g, odds.stream());
}

// Rows [first, first + rows) of a chunk's first product.
void multiply(const Odds& odds, Exponentials e, std::int64_t first, std::int64_t rows,
              const int* run_if) {
  const auto at = [&](auto* data) { return data == nullptr ? nullptr : data + first; };
  e.x.data = static_cast<const std::byte*>(e.x.data) + first * e.x.row_stride * 2;
  if (e.e != nullptr) e.e = static_cast<std::byte*>(e.e) + first * e.e_row_stride * 2;
  e.tokens = {at(e.tokens.factor), at(e.tokens.offset), at(e.tokens.target), nullptr, nullptr};
  if (e.parts != nullptr) {
    e.parts = static_cast<std::byte*>(e.parts) + first * odds.sizes().part_bytes;
  }
  e.options.gradient = at(e.options.gradient);
  e.rows = int_of(rows);
  e.run_if = run_if;
  const auto launch = e.e != nullptr ? launch_exponentials : launch_statistics;
  check_cuda(launch(e, odds.num_sms(), odds.stream()), "the product of exponentials");
}

Exponentials exponentials_of(const Odds& odds, const Matrix& x, const Chunk& chunk, Range vocab,
                             bool keep) {
  Exponentials e;
  e.x = x;
  e.w = odds.weight(vocab.begin);
  e.e = keep ? odds.e() : nullptr;
  e.e_row_stride = odds.sizes().e_cols;
  e.cols = int_of(vocab.size());
  e.hidden = chunk.hidden;
  e.first_col = int_of(vocab.begin);
  e.tokens = chunk.tokens;
  static_assert(sizeof(TilePart) == kTilePartBytes && sizeof(OptionsPart) == kOptionsPartBytes);
  expect(odds.sizes().has_options == has_options(odds.call()));
  e.has_options = odds.sizes().has_options;
  e.options = logit_options_of(odds.call(), vocab.begin);
  return e;
}

// Offsets, exponentials (kept or not) and statistics. Rows whose offset was too far off get another
// one, and their groups a second product, which does nothing as a rule.
void make_statistics(const Odds& odds, Range tokens, bool keep) {
  const Chunk chunk = odds.chunk(tokens);
  const Matrix x = odds.x(tokens);
  multiply_sample(odds, x, tokens);
  launch_offsets(odds.call(), chunk, odds.hidden_rows(), odds.weight(0), odds.sample(),
                 int_of(odds.sizes().sample_cols), odds.sample_step(), odds.stream());
  Exponentials e = exponentials_of(odds, x, chunk, {0, odds.problem().vocab}, keep);
  e.parts = odds.parts();
  e.part_stride = odds.sizes().part_stride;
  const Pieces groups(tokens.size(), kGroupRows);
  check_cuda(cudaMemsetAsync(odds.groups(), 0, static_cast<std::size_t>(groups.count()) * 4,
                             odds.stream()),
             "clearing flags");
  multiply(odds, e, 0, tokens.size(), nullptr);
  const auto finish = [&](bool is_last) {
    launch_finish_rows(odds.call(), chunk, odds.parts(), int_of(odds.sizes().num_tiles),
                       e.part_stride, odds.groups(), is_last, odds.stream());
  };
  finish(false);
  for (std::int64_t i = 0; i < groups.count(); ++i) {
    multiply(odds, e, groups[i].begin, groups[i].size(), odds.groups() + i);
  }
  finish(true);
}

// What the gradients' products read beside the exponentials, and which tokens have which target.
void scale_rows(const Odds& odds, Range tokens, bool is_unit) {
  const TargetLists lists = odds.lists();
  if (lists.first != nullptr) {
    check_cuda(
        cudaMemsetAsync(lists.first, 0xff, static_cast<std::size_t>(odds.problem().vocab) * 2 * 4,
                        odds.stream()),
        "clearing lists of targets");
  }
  const Chunk chunk = odds.chunk(tokens);
  const std::int64_t stride = odds.problem().hidden;
  std::byte* const xs = odds.problem().wants.grad_weight ? odds.scaled_hidden() : nullptr;
  launch_scaled_rows(odds.call(), chunk, odds.hidden_rows(), xs, stride, lists, is_unit,
                     odds.stream());
  if (odds.sizes().smoothing_rows == 0) return;
  launch_token_sums(odds.call(), chunk, odds.hidden_rows(), xs, stride, odds.stream());
}

void clear_rows(const Odds& odds, Range tokens, Range vocab) {
  launch_clear_rows(odds.call(), odds.chunk(tokens), odds.e(), odds.sizes().e_cols,
                    int_of(vocab.size()), odds.stream());
}

// Into the caller's f32 grad_weight.
void add_to_floats(const Odds& odds, Range tokens, Range vocab, Turn turn) {
  const MatrixView& out = odds.memory().step().outputs->grad_weight;
  Gemm g = gemm_of(odds, Product::kGradWeightAcc);
  g.m = vocab.size();
  g.n = odds.problem().hidden;
  g.k = tokens.size() + odds.sizes().smoothing_rows;
  g.a = {odds.e(), odds.sizes().e_cols, true};
  g.b = {odds.scaled_hidden(), odds.problem().hidden, false};
  g.d = row_of(out, vocab.begin);
  g.d_row_stride = stride_of(out);
  g.accumulate = odds.problem().accumulate_grad_weight || !turn.first;
  g.device_alpha = odds.alpha();
  g.device_beta = odds.call().gradient_scale->beta;
  run_gemm(g, odds.stream());
  launch_add_target_sums(odds.chunk(tokens), odds.hidden_rows(), odds.lists(), int_of(vocab.begin),
                         int_of(vocab.size()), odds.alpha(), {g.d, g.d_row_stride, g.out},
                         odds.stream());
}

GradWeight grad_weight_of(const Odds& odds, Range tokens, Range vocab) {
  const MatrixView& out = odds.memory().step().outputs->grad_weight;
  GradWeight g;
  g.e = odds.e_matrix();
  g.xs = {odds.scaled_hidden(), odds.problem().hidden};
  g.smoothing_rows = int_of(odds.sizes().smoothing_rows);
  g.out = row_of(out, vocab.begin);
  g.out_row_stride = stride_of(out);
  g.rows = int_of(tokens.size());
  g.cols = int_of(vocab.size());
  g.hidden = int_of(odds.problem().hidden);
  g.first_token = odds.lists().first + vocab.begin;
  g.lower = odds.memory().at(Slot::kTargetSums);
  g.alpha = odds.alpha();
  return g;
}

// bf16, the sum of several chunks and of what was there. What the last product adds to holds the
// targets' terms already.
void add_to_halves(const Odds& odds, Range tokens, Range vocab, Turn turn) {
  const GradWeight g = grad_weight_of(odds, tokens, vocab);
  const Halves sum{g.out, g.out_row_stride, odds.memory().at(Slot::kGradWeightAcc), g.hidden};
  const auto add_targets = [&] {
    launch_add_target_sums(odds.chunk(tokens), odds.hidden_rows(), odds.lists(),
                           int_of(vocab.begin), g.cols, g.alpha, sum, odds.stream());
  };
  const bool adds = odds.problem().accumulate_grad_weight;
  if (turn.first && adds) {
    check_cuda(cudaMemsetAsync(sum.lower, 0, bytes_of(g.cols, g.hidden, 2), odds.stream()),
               "clearing the lower halves of grad_weight");
  }
  if (turn.last) add_targets();
  check_cuda(
      launch_sum_grad_weight(g, sum, turn.first && !adds, turn.last, odds.num_sms(), odds.stream()),
      "the product of grad_weight");
  if (!turn.last) add_targets();
}

// bf16, all of it at once.
void write_grad_weight(const Odds& odds, Range tokens, Range vocab) {
  const GradWeight g = grad_weight_of(odds, tokens, vocab);
  check_cuda(launch_grad_weight(g, odds.num_sms(), odds.stream()), "the product of grad_weight");
  launch_finish_targets(odds.chunk(tokens), odds.hidden_rows(), odds.lists(), int_of(vocab.begin),
                        g.cols, g.alpha, {g.out, g.out_row_stride, g.lower, g.hidden},
                        odds.stream());
}

GradHidden grad_hidden_of(const Odds& odds, Range tokens, Range vocab) {
  const MatrixView& out = odds.memory().step().outputs->grad_hidden;
  GradHidden g;
  g.e = odds.e_matrix();
  g.w = odds.weight(vocab.begin);
  g.out = row_of(out, tokens.begin);
  g.out_row_stride = stride_of(out);
  g.rows = int_of(tokens.size());
  g.cols = int_of(vocab.size());
  g.hidden = int_of(odds.problem().hidden);
  g.tokens = odds.chunk(tokens).tokens;
  g.smoothing = odds.smoothing();
  g.alpha = odds.alpha();
  const int parts = odds.sizes().hidden_parts;
  // The last slab may be too narrow for them.
  if (parts > 1 && vocab.size() >= parts * kLeastPartCols) {
    g.parts = {parts, odds.memory().at(Slot::kHiddenParts),
               static_cast<std::size_t>(odds.sizes().hidden_parts_bytes)};
  }
  return g;
}

// The sum over slabs.
void sum_grad_hidden(const Odds& odds, Range tokens, Range vocab, Turn turn) {
  const GradHidden g = grad_hidden_of(odds, tokens, vocab);
  std::byte* const lower = odds.memory().at(Slot::kGradHiddenAcc) + tokens.begin * g.hidden * 2;
  const Halves sum{g.out, g.out_row_stride, lower, g.hidden};
  check_cuda(launch_sum_grad_hidden(g, sum, turn.first, odds.num_sms(), odds.stream()),
             "the product of grad_hidden");
  if (!turn.last) return;
  launch_store_grad_hidden(odds.chunk(tokens), sum, odds.weight(0), g.alpha, odds.stream());
}

void sum_grad_bias(const Odds& odds, Range tokens, Range vocab, Turn turn) {
  double* const acc = odds.bias_sums() + vocab.begin;
  launch_column_sums(odds.call(), odds.chunk(tokens), odds.e_matrix(), int_of(vocab.begin),
                     int_of(vocab.size()), turn.first, acc, odds.stream());
  if (!turn.last) return;
  const VectorView& bias = odds.memory().step().outputs->grad_bias;
  RealsOut out = reals_out(bias);
  out.data = static_cast<std::byte*>(bias.data) + vocab.begin * bias.stride * size_of(bias.dtype);
  launch_store_bias(acc, vocab.size(), out, odds.problem().accumulate_grad_bias, odds.stream());
}

}  // namespace

void prepare(const Step& step) {
  const Odds odds(step);
  if (odds.sizes().smoothing_rows == 0) return;
  // What is left of fused in a backward call is a factor.
  const bool reads_sums = !step.is_backward || step.plan->method == Method::kRecompute;
  if (!reads_sums) return;
  launch_class_sums(odds.call(), odds.weight(0), int_of(odds.problem().hidden), odds.smoothing(),
                    odds.stream());
  check_launch("prepare");
}

void partial(const Step& step, Range tokens) {
  if (tokens.size() == 0) return;
  make_statistics(Odds(step), tokens, false);
  check_launch("partial");
}

void fused_chunk(const Step& step, Range tokens) {
  if (tokens.size() == 0) return;
  const Odds odds(step);
  make_statistics(odds, tokens, true);
  launch_combine(odds.call(), tokens.begin, tokens.size(), odds.stream());
  launch_coefficients(odds.call(), tokens.begin, tokens.size(), odds.stream());
  scale_rows(odds, tokens, false);
  clear_rows(odds, tokens, {0, odds.problem().vocab});
  check_launch("fused_chunk");
}

void logits(const Step& step, Range tokens, Range vocab) {
  if (tokens.size() == 0) return;
  const Odds odds(step);
  const Chunk chunk = odds.chunk(tokens);
  const Matrix x = odds.x(tokens);
  // What is made of a single chunk's tokens stays for all slabs.
  if (vocab.begin == 0 || odds.sizes().num_chunks > 1) {
    launch_known_offsets(odds.call(), chunk, odds.gradient_rows(), odds.stream());
    scale_rows(odds, tokens, true);
  }
  Exponentials e = exponentials_of(odds, x, chunk, vocab, true);
  e.options.gradient = odds.gradient_rows();
  multiply(odds, e, 0, tokens.size(), nullptr);
  clear_rows(odds, tokens, vocab);
  check_launch("logits");
}

void grad_hidden(const Step& step, Range tokens, Range vocab, Turn turn) {
  if (tokens.size() == 0) return;
  const Odds odds(step);
  if (odds.sizes().sums_grad_hidden) {
    sum_grad_hidden(odds, tokens, vocab, turn);
  } else {
    const GradHidden g = grad_hidden_of(odds, tokens, vocab);
    launch_gather_targets(odds.chunk(tokens), g.w, g.out, g.out_row_stride, odds.stream());
    check_cuda(launch_grad_hidden(g, odds.num_sms(), odds.stream()), "the product of grad_hidden");
  }
  check_launch("grad_hidden");
}

void grad_weight(const Step& step, Range tokens, Range vocab, Turn turn) {
  if (tokens.size() == 0) return;
  const Odds odds(step);
  if (step.problem().wants.grad_bias) sum_grad_bias(odds, tokens, vocab, turn);
  if (!step.problem().wants.grad_weight) return check_launch("grad_weight");
  if (odds.sizes().smoothing_rows > 0) {
    std::byte* const behind = odds.e() + tokens.size() * odds.sizes().e_cols * 2;
    launch_class_rows(odds.call(), int_of(vocab.begin), int_of(vocab.size()), behind,
                      odds.sizes().e_cols, odds.stream());
  }
  if (odds.sizes().has_f32_weight) {
    add_to_floats(odds, tokens, vocab, turn);
  } else if (odds.sizes().sums_grad_weight) {
    add_to_halves(odds, tokens, vocab, turn);
  } else {
    write_grad_weight(odds, tokens, vocab);
  }
  check_launch("grad_weight");
}

}  // namespace flce::cuda::odds
