// SPDX-License-Identifier: Apache-2.0
// The eager variants: logits, their wide copy, log-probabilities, the gradient and its rounded
// copy, each a tensor of its own, as the PyTorch code that people run has them. A baseline to
// compare with: cuBLASLt's first candidates and plain passes over whole tensors. It must not be
// clever. backend/eager.hpp says where the tensors stand.
#include "backend/eager.hpp"

#include <algorithm>

#include "cuda/run/current.hpp"
#include "cuda/run/products.hpp"
#include "cuda/run/verbs.hpp"

namespace flce::cuda {
namespace {

class Eager {
 public:
  explicit Eager(const Step& step)
      : step_(step),
        p_(step.problem()),
        stream_(static_cast<cudaStream_t>(step.stream)),
        chunks_(p_.tokens, step.plan->chunk),
        scratch_bytes_(gemm_scratch_bytes(p_, chunks_[0].size())),
        room_(eager_room(p_, chunks_[0].size(), scratch_bytes_)),
        kept_(at(Slot::kKept)),
        rest_(at(Slot::kGradientPacked)),
        call_(call_of(step)) {
    call_.totals = reinterpret_cast<Totals*>(at(Slot::kRowState));
    call_.states = reinterpret_cast<TokenState*>(at(Slot::kRowState) + kTotalsBytes);
    call_.scales_gradient = false;
  }

  void run() {
    launch_scan_targets(call_, stream_);
    for (std::int64_t i = 0; i < chunks_.count(); ++i) {
      project(chunks_[i]);
      log_softmax(chunks_[i]);
      launch_eager_losses(call_, rest_ + room_.logprobs, chunks_[i].begin, chunks_[i].size(),
                          stream_);
    }
    launch_reduce_loss(call_, stream_);
    check_launch("eager forward");
    if (!p_.wants.any_gradient()) return;
    for (std::int64_t i = 0; i < chunks_.count(); ++i) {
      // A single chunk's log-probabilities are still there.
      if (chunks_.count() > 1) log_softmax(chunks_[i]);
      make_gradient(chunks_[i]);
      multiply(chunks_[i], i > 0);
    }
    check_launch("eager backward");
  }

 private:
  std::byte* at(Slot slot) const {
    const SlotPlace& place = step_.plan->slots[static_cast<std::size_t>(slot)];
    if (step_.report != nullptr) {
      std::uint64_t& mark = step_.report->workspace_high_water;
      mark = std::max(mark, place.offset + place.bytes);
    }
    return step_.workspace + place.offset;
  }
  bool is_narrow() const { return size_of(p_.dtype) < size_of(accumulation_dtype(p_.dtype)); }
  std::byte* logits(Range tokens) const {
    if (!p_.wants.any_gradient()) return is_narrow() ? rest_ + room_.logits : rest_ + room_.copy;
    return kept_ + tokens.begin * p_.vocab * size_of(p_.dtype);
  }

  Gemm gemm_of(std::uint64_t scratch) const {
    Gemm g;
    g.product = Product::kPlain;
    g.in = p_.dtype;
    g.out = p_.dtype;
    g.allow_tf32 = step_.plan->request.allow_tf32;
    g.scratch = aligned_gemm_scratch(rest_ + scratch);
    g.scratch_bytes = scratch_bytes_ - kGemmScratchAlignment;
    return g;
  }

  // The product, rounded to the inputs' type.
  void project(Range tokens) const {
    const MatrixView& hidden = step_.inputs->hidden;
    const MatrixView& weight = step_.inputs->weight;
    Gemm g = gemm_of(room_.logits_products);
    g.m = tokens.size();
    g.n = p_.vocab;
    g.k = p_.hidden;
    g.a = {row_of(hidden, tokens.begin), stride_of(hidden), false};
    g.b = {weight.data, stride_of(weight), true};
    g.d = logits(tokens);
    g.d_row_stride = p_.vocab;
    run_gemm(g, stream_);
  }

  void log_softmax(Range tokens) const {
    const void* wide = logits(tokens);
    if (is_narrow()) {
      launch_eager_copy(call_, wide, rest_ + room_.copy, tokens.size() * p_.vocab, stream_);
      wide = rest_ + room_.copy;
    }
    launch_eager_logprobs(call_, wide, rest_ + room_.logprobs, tokens.size(), stream_);
  }

  void make_gradient(Range tokens) const {
    launch_eager_gradient(call_, rest_ + room_.logprobs, rest_ + room_.gradient, tokens.begin,
                          tokens.size(), stream_);
    if (!is_narrow()) return;
    launch_eager_round(call_, rest_ + room_.gradient, rest_ + room_.rounded,
                       tokens.size() * p_.vocab, stream_);
  }

  // grad_hidden of the chunk, and its part of grad_weight, which is rounded with every chunk.
  void multiply(Range tokens, bool add) const {
    const MatrixView& hidden = step_.inputs->hidden;
    const MatrixView& weight = step_.inputs->weight;
    const std::byte* gradient = rest_ + (is_narrow() ? room_.rounded : room_.gradient);
    Gemm g = gemm_of(room_.grads_products);
    g.n = p_.hidden;
    if (p_.wants.grad_hidden) {
      const MatrixView& out = step_.outputs->grad_hidden;
      g.m = tokens.size();
      g.k = p_.vocab;
      g.a = {gradient, p_.vocab, false};
      g.b = {weight.data, stride_of(weight), false};
      g.d = row_of(out, tokens.begin);
      g.d_row_stride = stride_of(out);
      run_gemm(g, stream_);
    }
    if (!p_.wants.grad_weight) return;
    const MatrixView& out = step_.outputs->grad_weight;
    g.m = p_.vocab;
    g.k = tokens.size();
    g.a = {gradient, p_.vocab, true};
    g.b = {row_of(hidden, tokens.begin), stride_of(hidden), false};
    g.out = out.dtype;
    g.d = out.data;
    g.d_row_stride = stride_of(out);
    g.accumulate = add;
    run_gemm(g, stream_);
  }

  const Step& step_;
  const Problem& p_;
  cudaStream_t stream_;
  Pieces chunks_;
  std::uint64_t scratch_bytes_;
  EagerRoom room_;
  std::byte* kept_;
  std::byte* rest_;
  Call call_;
};

}  // namespace

void run_eager(const Step& step) { Eager(step).run(); }

}  // namespace flce::cuda
