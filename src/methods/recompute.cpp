// SPDX-License-Identifier: Apache-2.0
// recompute: the forward pass keeps a few numbers per token; the backward pass makes the logits
// again, slab of the vocabulary by slab, for any upstream gradient, also the entropy's. One more
// product than fused, and no accumulator of V*H.
#include "methods/methods.hpp"

namespace flce {
namespace {

Kept kept(const Problem& p, const Tiling& tiling) {
  if (!p.wants.any_gradient()) return {};
  return {Keep::kLogits, chunk_tokens(p, tiling), std::min(tiling.slab, p.vocab), false};
}

void forward(const Backend& backend, const Step& step) {
  backend.scan_targets(step);
  const Pieces chunks(step.problem().tokens, step.plan->chunk);
  for (std::int64_t i = 0; i < chunks.count(); ++i) {
    backend.partial(step, chunks[i], Keep::kNothing, 0);
    backend.combine(step, chunks[i]);
  }
  backend.reduce_loss(step);
}

// Slabs outside, so that a slab's rows of grad_weight are finished before the next slab: their sum
// over chunks needs room for one slab only. grad_hidden's sum over slabs takes N*H.
void backward(const Backend& backend, const Step& step) {
  const Problem& p = step.problem();
  const Pieces chunks(p.tokens, step.plan->chunk);
  const Pieces slabs(p.vocab, step.plan->slab);
  backend.coefficients(step, {0, p.tokens});
  for (std::int64_t s = 0; s < slabs.count(); ++s) {
    for (std::int64_t i = 0; i < chunks.count(); ++i) {
      backend.logits(step, chunks[i], slabs[s]);
      grads_of_chunk(backend, step, chunks[i], slabs[s], 0, {slabs.is_first(s), slabs.is_last(s)},
                     {chunks.is_first(i), chunks.is_last(i)});
    }
  }
}

}  // namespace

const MethodInfo kMethodRecompute{Method::kRecompute,
                                  false,
                                  [](const Problem& p) { return count_gemms(p, 2); },
                                  never_refuses,
                                  kept,
                                  forward,
                                  backward};

}  // namespace flce
