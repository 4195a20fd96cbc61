// SPDX-License-Identifier: Apache-2.0
// The methods, and what they have in common.
#pragma once

#include <algorithm>

#include "methods/method.hpp"

namespace flce {

extern const MethodInfo kMethodNaive;
extern const MethodInfo kMethodChunked;
extern const MethodInfo kMethodFused;
extern const MethodInfo kMethodRecompute;
extern const MethodInfo kMethodNaiveEager;
extern const MethodInfo kMethodChunkedEager;

inline void never_refuses(const Problem&, std::array<char, 320>&) {}

// `logits_gemms` products make the logits (the last one only if gradients are wanted), and one each
// grad_hidden and grad_weight.
inline int count_gemms(const Problem& p, int logits_gemms) {
  if (!p.wants.any_gradient()) return 1;
  return logits_gemms + (p.wants.grad_hidden ? 1 : 0) + (p.wants.grad_weight ? 1 : 0);
}

// Every token's logits, until the backward pass has used them: what the baselines keep.
inline Kept keeps_all_logits(const Problem& p, const Tiling&) {
  if (!p.wants.any_gradient()) return {};
  return {Keep::kLogits, std::max<std::int64_t>(p.tokens, 1), p.vocab, true};
}

// Tokens of a chunk's kept values; an empty batch keeps room for one.
inline std::int64_t chunk_tokens(const Problem& p, const Tiling& tiling) {
  return std::max<std::int64_t>(std::min(tiling.chunk, p.tokens), 1);
}

// The gradient products of one piece of work. Each gradient has its own turn: grad_hidden sums over
// the vocabulary, grad_weight over tokens.
inline void grads_of_chunk(const Backend& backend, const Step& step, Range tokens, Range vocab,
                           std::int64_t kept_row, Turn hidden_turn, Turn weight_turn) {
  const Wants& wants = step.problem().wants;
  if (wants.grad_hidden) backend.grad_hidden(step, tokens, vocab, kept_row, hidden_turn);
  if (wants.grad_weight || wants.grad_bias) {
    backend.grad_weight(step, tokens, vocab, kept_row, weight_turn);
  }
}

}  // namespace flce
