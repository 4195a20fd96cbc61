// SPDX-License-Identifier: Apache-2.0
// fused: one chunk of exponentials at a time, gone when its gradients are made in the forward pass.
// The upstream gradient must be known then, or be one number that multiplies the gradients later.
#include "core/text.hpp"
#include "methods/methods.hpp"

namespace flce {
namespace {

void refusal(const Problem& p, std::array<char, 320>& text) {
  if (!p.wants.any_gradient()) return;
  if (p.grad_entropy_dtype != Dtype::kNone && p.pass == Pass::kForwardBackward) {
    write_text(text,
               "fused makes its gradients in the forward call, when the upstream gradient of the "
               "entropy is not known; recompute takes it");
  } else if (p.grad_entropy_dtype != Dtype::kNone) {
    write_text(text,
               "fused does not differentiate the entropy, whose gradient needs the logits again; "
               "recompute does");
  } else if (p.pass == Pass::kForwardBackward && p.options.reduction == Reduction::kNone) {
    write_text(text,
               "fused makes its gradients in the forward call, when the upstream gradient of each "
               "token (reduction none) is not known; recompute takes it, or pass the upstream to a "
               "single run call");
  } else if (p.pass == Pass::kForwardBackward && p.upstream != Upstream::kOne &&
             (p.accumulate_grad_weight || p.accumulate_grad_bias)) {
    write_text(text,
               "fused would add gradients to the caller's buffer before their upstream gradient is "
               "known; recompute adds them in the backward call, or state an upstream of 1");
  }
}

// The exponentials do not hold what label smoothing needs of a softcap's slope; logits do.
Kept kept(const Problem& p, const Tiling& tiling) {
  if (!p.wants.any_gradient()) return {};
  const bool needs_logits = p.options.softcap != 0.0 && p.options.label_smoothing != 0.0;
  return {needs_logits ? Keep::kLogits : Keep::kExponentials, chunk_tokens(p, tiling), p.vocab,
          false};
}

void forward(const Backend& backend, const Step& step) {
  const Problem& p = step.problem();
  backend.scan_targets(step);
  const Pieces chunks(p.tokens, step.plan->chunk);
  for (std::int64_t i = 0; i < chunks.count(); ++i) {
    if (!p.wants.any_gradient()) {
      backend.partial(step, chunks[i], Keep::kNothing, 0);
      backend.combine(step, chunks[i]);
      continue;
    }
    backend.fused_chunk(step, chunks[i], step.kept.what);
    grads_of_chunk(backend, step, chunks[i], {0, p.vocab}, 0, Turn{},
                   {chunks.is_first(i), chunks.is_last(i)});
  }
  backend.reduce_loss(step);
}

// All that is left of the backward pass is the caller's scalar; within one run call it has been
// used already.
void backward(const Backend& backend, const Step& step) {
  const Problem& p = step.problem();
  if (p.pass == Pass::kRun || p.upstream == Upstream::kOne) return;
  backend.scale_grads(step.inputs->grad_output, step.outputs->grad_hidden,
                      step.outputs->grad_weight, step.outputs->grad_bias, step.stream);
}

}  // namespace

const MethodInfo kMethodFused{
    Method::kFused, false,   [](const Problem& p) { return count_gemms(p, 1); }, refusal, kept,
    forward,        backward};

}  // namespace flce
