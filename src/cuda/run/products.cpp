// SPDX-License-Identifier: Apache-2.0
#include "cuda/run/products.hpp"

namespace flce::cuda {
namespace {

// The parts that the three have in common.
Gemm gemm_of(const Memory& memory, Product product) {
  Gemm g;
  g.product = product;
  g.in = memory.problem().dtype;
  g.out = accumulation_dtype(g.in);
  g.allow_tf32 = memory.step().plan->request.allow_tf32;
  g.alpha = memory.problem().options.scale;
  g.scratch = memory.scratch();
  g.scratch_bytes = memory.scratch_bytes();
  return g;
}

// f16 gradients are stored times a power of two; its inverse is known on the device.
void use_gradient_scale(const Memory& memory, Gemm& g) {
  if (!memory.call().scales_gradient) return;
  g.device_alpha = &memory.call().gradient_scale->alpha;
  g.device_beta = memory.call().gradient_scale->beta;
}

Operand packed_hidden(const Memory& memory, std::int64_t row, bool transposed) {
  const Sizes& s = memory.sizes();
  return {memory.at(Slot::kHiddenPacked) + row * s.hidden_cols * s.in_size, s.hidden_cols,
          transposed};
}

}  // namespace

void multiply_logits(const Memory& memory, std::int64_t packed_row, const LogitBlock& block) {
  const MatrixView& weight = memory.step().inputs->weight;
  Gemm g = gemm_of(memory, Product::kLogits);
  g.m = block.rows;
  g.n = block.cols;
  g.k = memory.problem().hidden;
  g.a = packed_hidden(memory, packed_row, false);
  g.b = {row_of(weight, block.first_col), stride_of(weight), true};
  g.d = block.data;
  g.d_row_stride = block.row_stride;
  run_gemm(g, memory.stream());
}

void multiply_grad_hidden(const Memory& memory, const GradientBlock& gradient, Range tokens,
                          Range vocab, Turn turn) {
  const MatrixView& weight = memory.step().inputs->weight;
  const MatrixView& out = memory.step().outputs->grad_hidden;
  const bool sums = memory.sizes().sums_grad_hidden;
  Gemm g = gemm_of(memory, Product::kGradHidden);
  g.m = tokens.size();
  g.n = memory.problem().hidden;
  g.k = vocab.size();
  g.a = {gradient.data, gradient.row_stride, false};
  g.b = {row_of(weight, vocab.begin), stride_of(weight), false};
  g.accumulate = !turn.first;
  use_gradient_scale(memory, g);
  if (sums) {
    g.d = memory.at(Slot::kGradHiddenAcc) + tokens.begin * g.n * memory.sizes().acc_size;
    g.d_row_stride = g.n;
  } else {
    g.out = out.dtype;
    g.d = row_of(out, tokens.begin);
    g.d_row_stride = stride_of(out);
  }
  run_gemm(g, memory.stream());
  if (!turn.last) return;
  if (sums) {
    launch_store_rows({g.d, g.n, g.out}, {row_of(out, tokens.begin), out.row_stride, out.dtype},
                      g.m, g.n, false, memory.stream());
  }
  // 0 * inf in the weight is not 0.
  launch_clear_inactive(memory.call(), {out.data, out.row_stride, out.dtype}, tokens.begin, g.m,
                        g.n, memory.stream());
}

void multiply_grad_weight(const Memory& memory, const GradientBlock& gradient, Range tokens,
                          Range vocab, Turn turn) {
  const Problem& p = memory.problem();
  const MatrixView& out = memory.step().outputs->grad_weight;
  const bool is_direct = memory.sizes().weight_sum == WeightSum::kDirect;
  const bool into_f32 = !is_direct || out.dtype == accumulation_dtype(p.dtype);
  Gemm g = gemm_of(memory, into_f32 ? Product::kGradWeightAcc : Product::kGradWeight);
  g.m = vocab.size();
  g.n = p.hidden;
  g.k = tokens.size();
  g.a = {gradient.data, gradient.row_stride, true};
  g.b = packed_hidden(memory, 0, false);
  use_gradient_scale(memory, g);
  if (is_direct) {
    g.out = out.dtype;
    g.d = row_of(out, vocab.begin);
    g.d_row_stride = stride_of(out);
    g.accumulate = p.accumulate_grad_weight || !turn.first;
  } else {
    // The accumulator of `recompute` holds the rows of one slab, others hold all.
    const std::int64_t row = memory.sizes().sum_rows < p.vocab ? 0 : vocab.begin;
    g.d = memory.at(Slot::kGradWeightAcc) + row * g.n * memory.sizes().acc_size;
    g.d_row_stride = g.n;
    g.accumulate = !turn.first;
  }
  run_gemm(g, memory.stream());
  if (is_direct || !turn.last) return;
  launch_store_rows({g.d, g.n, g.out}, {row_of(out, vocab.begin), out.row_stride, out.dtype}, g.m,
                    g.n, p.accumulate_grad_weight, memory.stream());
}

}  // namespace flce::cuda
