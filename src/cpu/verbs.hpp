// SPDX-License-Identifier: Apache-2.0
// The verbs of the CPU backend, one file each; backend.cpp hands them to the methods.
// backend/backend.hpp says what they do.
#pragma once

#include "backend/backend.hpp"

namespace flce::cpu {

void book_cpu(const Problem& problem, const DeviceCaps& caps, const Tiling& tiling,
              const Kept& kept, Ledger& ledger);
Tiling preferred_cpu_tiling(const Problem& problem, Method method);

void prepare(const Step& step);
void scan_targets(const Step& step);
void partial(const Step& step, Range tokens, Keep keep, std::int64_t kept_row);
void logits(const Step& step, Range tokens, Range vocab);
std::int64_t stats_bytes();
void export_stats(const Step& step, Range tokens, std::byte* to);
void merge_stats(const Step& step, Range tokens, const std::byte* gathered, int num_shards);
void combine(const Step& step, Range tokens);
void coefficients(const Step& step, Range tokens);
void reduce_loss(const Step& step);
void grad_hidden(const Step& step, Range tokens, Range vocab, std::int64_t kept_row, Turn turn);
void grad_weight(const Step& step, Range tokens, Range vocab, std::int64_t kept_row, Turn turn);
void run_eager(const Step& step);
std::uint64_t eager_scratch_bytes(const Problem& problem, const DeviceCaps& caps,
                                  std::int64_t chunk);
void scale_grads(const VectorView& upstream, const MatrixView& grad_hidden,
                 const MatrixView& grad_weight, const VectorView& grad_bias);

}  // namespace flce::cpu
