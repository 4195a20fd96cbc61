// SPDX-License-Identifier: Apache-2.0
// The verbs of backend/backend.hpp on CUDA. Each gives work to the step's stream and returns.
#pragma once

#include "backend/backend.hpp"

namespace flce::cuda {

void prepare(const Step& step);
void scan_targets(const Step& step);
void partial(const Step& step, Range tokens, Keep keep, std::int64_t kept_row);
void fused_chunk(const Step& step, Range tokens);
void logits(const Step& step, Range tokens, Range vocab);
void export_stats(const Step& step, Range tokens, std::byte* to);
void merge_stats(const Step& step, Range tokens, const std::byte* gathered, int num_shards);
void combine(const Step& step, Range tokens);
void coefficients(const Step& step, Range tokens);
void reduce_loss(const Step& step);
void grad_hidden(const Step& step, Range tokens, Range vocab, std::int64_t kept_row, Turn turn);
void grad_weight(const Step& step, Range tokens, Range vocab, std::int64_t kept_row, Turn turn);
void run_eager(const Step& step);
void scale_grads(const VectorView& upstream, const MatrixView& grad_hidden,
                 const MatrixView& grad_weight, const VectorView& grad_bias, void* stream);
// Waits, and throws Error{kTargetOutOfRange} if a target was out of range.
void check_targets(const Step& step);

}  // namespace flce::cuda
