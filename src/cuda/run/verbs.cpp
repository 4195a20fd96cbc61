// SPDX-License-Identifier: Apache-2.0
// The verbs: which products and kernels, in which order. A chunk's hidden rows are packed once
// (Slot::kHiddenPacked), without those of tokens that have no target: what such a row holds must
// reach neither a product's sum nor a neighbour.
#include "cuda/run/verbs.hpp"

#include <algorithm>

#include "backend/eager.hpp"
#include "core/check.hpp"
#include "cuda/run/current.hpp"
#include "cuda/run/products.hpp"

namespace flce::cuda {
namespace {

enum class Select { kWithTarget, kWithGradient };

void pack(const Memory& memory, Range tokens, Select select) {
  const MatrixView& hidden = memory.step().inputs->hidden;
  launch_pack_hidden(memory.call(), {hidden.data, hidden.row_stride, hidden.dtype},
                     memory.at(Slot::kHiddenPacked), memory.sizes().hidden_cols, tokens.begin,
                     tokens.size(), memory.problem().hidden, select == Select::kWithGradient,
                     memory.stream());
}

// Rows that were packed for the logits but have no gradient.
void clear_packed(const Memory& memory, Range tokens) {
  const Sizes& s = memory.sizes();
  std::byte* const first = memory.at(Slot::kHiddenPacked);
  launch_clear_inactive(
      memory.call(),
      {first - tokens.begin * s.hidden_cols * s.in_size, s.hidden_cols, memory.problem().dtype},
      tokens.begin, tokens.size(), s.hidden_cols, memory.stream());
}

// Statistics without logits that outlive a piece of them.
void partial_in_pieces(const Memory& memory, Range tokens) {
  const Sizes& s = memory.sizes();
  const Pieces rows(tokens.size(), s.piece_tokens);
  const Pieces cols(memory.problem().vocab, s.piece_cols);
  for (std::int64_t r = 0; r < rows.count(); ++r) {
    const Range piece{tokens.begin + rows[r].begin, tokens.begin + rows[r].end};
    for (std::int64_t c = 0; c < cols.count(); ++c) {
      const LogitBlock block = memory.logits(piece, cols[c], 0);
      multiply_logits(memory, rows[r].begin, block);
      launch_row_stats(memory.call(), block, cols.is_first(c), memory.stream());
      launch_topk(memory.call(), block, rows[r].begin, cols.is_first(c), memory.stream());
    }
  }
}

// Logits into gradient, once: by the first of the two products that wants it.
void make_gradient(const Memory& memory, Range tokens, Range vocab, std::int64_t kept_row) {
  if (memory.step().plan->method == Method::kFused) return;  // fused_chunk has done it
  launch_row_gradient(memory.call(), memory.logits(tokens, vocab, kept_row),
                      memory.gradient(kept_row), memory.stream());
}

bool packs_for_logits(Method method) {
  return method == Method::kFused || method == Method::kRecompute;
}

}  // namespace

void prepare(const Step& step) {
  const Memory memory(step);
  launch_widen_vectors(memory.call(), memory.stream());
  if (step.is_backward && memory.call().scales_gradient) {
    launch_gradient_scale(memory.call(), memory.stream());
  }
  check_launch("prepare");
}

void scan_targets(const Step& step) {
  const Memory memory(step);
  launch_scan_targets(memory.call(), memory.stream());
  // The upstream gradient of a forward call is known to none but `fused`, whose is 1.
  const bool makes_gradients =
      step.problem().pass == Pass::kRun || step.plan->method == Method::kFused;
  if (memory.call().scales_gradient && makes_gradients) {
    launch_gradient_scale(memory.call(), memory.stream());
  }
  check_launch("scan_targets");
}

void partial(const Step& step, Range tokens, Keep keep, std::int64_t kept_row) {
  if (tokens.size() == 0) return;
  const Memory memory(step);
  pack(memory, tokens, Select::kWithTarget);
  if (keep == Keep::kNothing) {
    partial_in_pieces(memory, tokens);
  } else {
    const LogitBlock block = memory.logits(tokens, {0, memory.problem().vocab}, kept_row);
    multiply_logits(memory, 0, block);
    launch_row_stats(memory.call(), block, true, memory.stream());
    launch_topk(memory.call(), block, 0, true, memory.stream());
  }
  check_launch("partial");
}

void fused_chunk(const Step& step, Range tokens) {
  if (tokens.size() == 0) return;
  const Memory memory(step);
  const LogitBlock block = memory.logits(tokens, {0, memory.problem().vocab}, 0);
  pack(memory, tokens, Select::kWithTarget);
  multiply_logits(memory, 0, block);
  launch_topk(memory.call(), block, 0, true, memory.stream());
  launch_token_factors(memory.call(), tokens.begin, tokens.size(), memory.stream());
  launch_fused_rows(memory.call(), block, memory.stream());
  launch_combine(memory.call(), tokens.begin, tokens.size(), memory.stream());
  launch_finish_topk(memory.call(), tokens.begin, tokens.size(), memory.stream());
  check_launch("fused_chunk");
}

void logits(const Step& step, Range tokens, Range vocab) {
  if (tokens.size() == 0) return;
  const Memory memory(step);
  // The packed rows of a single chunk stay for all slabs.
  if (vocab.begin == 0 || memory.sizes().num_chunks > 1) pack(memory, tokens, Select::kWithTarget);
  multiply_logits(memory, 0, memory.logits(tokens, vocab, 0));
  check_launch("logits");
}

void export_stats(const Step& step, Range tokens, std::byte* to) {
  const Memory memory(step);
  launch_export_stats(memory.call(), tokens.begin, tokens.size(), reinterpret_cast<RowStats*>(to),
                      memory.stream());
  check_launch("export_stats");
}

void merge_stats(const Step& step, Range tokens, const std::byte* gathered, int num_shards) {
  const Memory memory(step);
  launch_merge_stats(memory.call(), tokens.begin, tokens.size(),
                     reinterpret_cast<const RowStats*>(gathered), num_shards, memory.stream());
  check_launch("merge_stats");
}

void combine(const Step& step, Range tokens) {
  const Memory memory(step);
  launch_combine(memory.call(), tokens.begin, tokens.size(), memory.stream());
  launch_finish_topk(memory.call(), tokens.begin, tokens.size(), memory.stream());
  check_launch("combine");
}

void coefficients(const Step& step, Range tokens) {
  const Memory memory(step);
  launch_coefficients(memory.call(), tokens.begin, tokens.size(), memory.stream());
  check_launch("coefficients");
}

void reduce_loss(const Step& step) {
  const Memory memory(step);
  launch_reduce_loss(memory.call(), memory.stream());
  check_launch("reduce_loss");
}

void grad_hidden(const Step& step, Range tokens, Range vocab, std::int64_t kept_row, Turn turn) {
  if (tokens.size() == 0) return;
  const Memory memory(step);
  make_gradient(memory, tokens, vocab, kept_row);
  multiply_grad_hidden(memory, memory.gradient(kept_row), tokens, vocab, turn);
  check_launch("grad_hidden");
}

void grad_weight(const Step& step, Range tokens, Range vocab, std::int64_t kept_row, Turn turn) {
  const Memory memory(step);
  const Problem& p = memory.problem();
  const MatrixView& weight = step.outputs->grad_weight;
  const GradientBlock gradient = memory.gradient(kept_row);
  if (tokens.size() > 0) {
    if (!p.wants.grad_hidden) make_gradient(memory, tokens, vocab, kept_row);
    if (p.wants.grad_weight) {
      if (packs_for_logits(step.plan->method)) {
        clear_packed(memory, tokens);
      } else {
        pack(memory, tokens, Select::kWithGradient);
      }
      multiply_grad_weight(memory, gradient, tokens, vocab, turn);
    }
  } else if (p.wants.grad_weight && !p.accumulate_grad_weight) {
    launch_zero_rows({row_of(weight, vocab.begin), weight.row_stride, weight.dtype}, vocab.size(),
                     p.hidden, memory.stream());
  }
  if (p.wants.grad_bias) {
    const VectorView& bias = step.outputs->grad_bias;
    auto* acc = reinterpret_cast<double*>(memory.at(Slot::kGradBiasAcc)) + vocab.begin;
    launch_column_sums(memory.call(), gradient, tokens.size(), vocab.size(), turn.first, acc,
                       memory.stream());
    if (turn.last) {
      RealsOut out = reals_out(bias);
      out.data =
          static_cast<std::byte*>(bias.data) + vocab.begin * bias.stride * size_of(bias.dtype);
      launch_store_bias(acc, vocab.size(), out, p.accumulate_grad_bias, memory.stream());
    }
  }
  check_launch("grad_weight");
}

void scale_grads(const VectorView& upstream, const MatrixView& grad_hidden,
                 const MatrixView& grad_weight, const VectorView& grad_bias, void* stream) {
  const Reals factor = reals(upstream);
  const auto to = static_cast<cudaStream_t>(stream);
  for (const MatrixView* grad : {&grad_hidden, &grad_weight}) {
    if (!*grad) continue;
    launch_scale_rows(factor, {grad->data, grad->row_stride, grad->dtype}, grad->rows, grad->cols,
                      to);
  }
  if (grad_bias) launch_scale_vector(factor, reals_out(grad_bias), grad_bias.size, to);
  check_launch("scale_grads");
}

void check_targets(const Step& step) {
  // The eager variants keep their sums before the states of the tokens (eager.cpp).
  const Slot slot = is_eager(step.plan->method) ? Slot::kRowState : Slot::kReduction;
  const SlotPlace& place = step.plan->slots[static_cast<std::size_t>(slot)];
  const std::byte* sums = (place.saved ? step.saved : step.workspace) + place.offset;
  const auto stream = static_cast<cudaStream_t>(step.stream);
  Totals totals;
  check_cuda(cudaMemcpyAsync(&totals, sums, sizeof totals, cudaMemcpyDeviceToHost, stream),
             "reading the result of the target check");
  check_cuda(cudaStreamSynchronize(stream), "the step");
  const Problem& p = step.problem();
  require(totals.num_out_of_range == 0, ErrorCode::kTargetOutOfRange,
          "target[{}] is {}, outside the vocabulary [0, {}) and not ignore_index {}{}; mark tokens "
          "without a target with ignore_index",
          totals.bad_token, totals.bad_target, p.vocab_total(), p.options.ignore_index,
          totals.num_out_of_range > 1 ? ", and so are others behind it" : "");
}

}  // namespace flce::cuda
