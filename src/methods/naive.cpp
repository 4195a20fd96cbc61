// SPDX-License-Identifier: Apache-2.0
// naive: all logits are made and kept; the gradients come from them in the backward pass. The
// baseline: N*V values in the accumulation type.
#include "methods/methods.hpp"

namespace flce {
namespace {

void forward(const Backend& backend, const Step& step) {
  const Range tokens{0, step.problem().tokens};
  backend.scan_targets(step);
  backend.partial(step, tokens, step.kept.what, 0);
  backend.combine(step, tokens);
  backend.reduce_loss(step);
}

void backward(const Backend& backend, const Step& step) {
  const Problem& p = step.problem();
  const Range tokens{0, p.tokens};
  backend.coefficients(step, tokens);
  grads_of_chunk(backend, step, tokens, {0, p.vocab}, 0, Turn{}, Turn{});
}

}  // namespace

const MethodInfo kMethodNaive{Method::kNaive,
                              false,
                              [](const Problem& p) { return count_gemms(p, 1); },
                              never_refuses,
                              keeps_all_logits,
                              forward,
                              backward};

}  // namespace flce
