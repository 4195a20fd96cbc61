// SPDX-License-Identifier: Apache-2.0
// The verbs of route hopper, for those that differ from the portable ones (verbs.hpp): exponentials
// relative to a guessed offset in place of logits, gradients straight from them.
#pragma once

#include "backend/backend.hpp"

namespace flce::cuda::odds {

// Beside the portable one.
void prepare(const Step& step);
void partial(const Step& step, Range tokens);
void fused_chunk(const Step& step, Range tokens);
// Exponentials in place of logits.
void logits(const Step& step, Range tokens, Range vocab);
void grad_hidden(const Step& step, Range tokens, Range vocab, Turn turn);
void grad_weight(const Step& step, Range tokens, Range vocab, Turn turn);

}  // namespace flce::cuda::odds
