// SPDX-License-Identifier: Apache-2.0
// The three products of a chunk, on a step's memory.
#pragma once

#include "cuda/run/memory.hpp"

namespace flce::cuda {

// Packed hidden rows, from row `packed_row` of the packed chunk on, times the weight's rows
// block.first_col ... -> block, scale included.
void multiply_logits(const Memory& memory, std::int64_t packed_row, const LogitBlock& block);
// gradient (tokens, vocab) . weight[vocab] -> grad_hidden[tokens] or its accumulator.
void multiply_grad_hidden(const Memory& memory, const GradientBlock& gradient, Range tokens,
                          Range vocab, Turn turn);
// gradient^T . packed hidden rows -> grad_weight[vocab] or its accumulator.
void multiply_grad_weight(const Memory& memory, const GradientBlock& gradient, Range tokens,
                          Range vocab, Turn turn);

// A matrix view whose rows may be written or read with this stride by cuBLASLt.
inline std::int64_t stride_of(const MatrixView& view) {
  return view.rows <= 1 ? view.cols : view.row_stride;
}
inline std::byte* row_of(const MatrixView& view, std::int64_t row) {
  return static_cast<std::byte*>(view.data) + row * view.row_stride * size_of(view.dtype);
}

}  // namespace flce::cuda
