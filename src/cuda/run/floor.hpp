// SPDX-License-Identifier: Apache-2.0
// Yardsticks: the three products of a problem on their own, every candidate of them timed, and the
// error of a matrix against another one.
#pragma once

#include <memory>
#include <vector>

#include "cuda/library.hpp"

namespace flce::cuda {

std::unique_ptr<CudaFloor> make_floor(const MatrixView& hidden, const MatrixView& weight,
                                      bool allow_tf32);
std::vector<TunedProduct> tune(std::int64_t tokens, std::int64_t hidden, std::int64_t vocab,
                               Dtype dtype, int rounds);
RowPass measure_row_pass(std::int64_t tokens, std::int64_t vocab, Dtype dtype, int rounds);
double relative_error(const MatrixView& got, const MatrixView& want);

}  // namespace flce::cuda
