// SPDX-License-Identifier: Apache-2.0
// chunked: the logits are made chunk by chunk, but every chunk is kept until the backward pass has
// used it, as a framework does whose graph is alive until then. Smaller steps, the same plateau.
#include "methods/methods.hpp"

namespace flce {
namespace {

void forward(const Backend& backend, const Step& step) {
  backend.scan_targets(step);
  const Pieces chunks(step.problem().tokens, step.plan->chunk);
  for (std::int64_t i = 0; i < chunks.count(); ++i) {
    backend.partial(step, chunks[i], step.kept.what, chunks[i].begin);
    backend.combine(step, chunks[i]);
  }
  backend.reduce_loss(step);
}

void backward(const Backend& backend, const Step& step) {
  const Problem& p = step.problem();
  const Pieces chunks(p.tokens, step.plan->chunk);
  for (std::int64_t i = 0; i < chunks.count(); ++i) {
    backend.coefficients(step, chunks[i]);
    grads_of_chunk(backend, step, chunks[i], {0, p.vocab}, chunks[i].begin, Turn{},
                   {chunks.is_first(i), chunks.is_last(i)});
  }
}

}  // namespace

const MethodInfo kMethodChunked{Method::kChunked,
                                false,
                                [](const Problem& p) { return count_gemms(p, 1); },
                                never_refuses,
                                keeps_all_logits,
                                forward,
                                backward};

}  // namespace flce
