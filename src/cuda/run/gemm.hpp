// SPDX-License-Identifier: Apache-2.0
// One matrix product by cuBLASLt, and the choice among its candidates. Knows nothing of losses:
// products.hpp names the three that they need.
//
// Row-major throughout: D (m, n) = alpha * op(A) (m, k) * op(B) (k, n) + beta * D.
#pragma once

#include <cuda_runtime_api.h>

#include <cstdint>
#include <vector>

#include "cuda/choices.hpp"
#include "cuda/run/cublaslt.hpp"
#include "flce/types.hpp"

namespace flce::cuda {

struct Operand {
  const void* data = nullptr;
  std::int64_t row_stride = 0;  // of the matrix as it lies in memory
  bool transposed = false;
};

struct Gemm {
  Product product = Product::kLogits;  // whose choice of candidate is looked up
  std::int64_t m = 0;
  std::int64_t n = 0;
  std::int64_t k = 0;
  Operand a;
  Operand b;
  void* d = nullptr;
  std::int64_t d_row_stride = 0;
  Dtype in = Dtype::kF32;
  Dtype out = Dtype::kF32;
  bool allow_tf32 = false;
  bool accumulate = false;  // beta 1, else 0
  double alpha = 1.0;
  // In place of alpha and beta: floats on the device, [0] and [accumulate].
  const float* device_alpha = nullptr;
  const float* device_beta = nullptr;
  void* scratch = nullptr;
  std::uint64_t scratch_bytes = 0;
};

// A candidate, with what it is known by.
struct Candidate {
  cublasLtMatmulAlgo_t algo{};
  int tile_id = 0;
  int cluster_id = 0;
};

// cuBLASLt's candidates in its own order, as for these pointers' alignment. Host work only.
std::vector<Candidate> candidates_of(const Gemm& gemm, int most);
// Starts the product with this candidate.
void run_gemm(const Gemm& gemm, const Candidate& candidate, cudaStream_t stream);
// With the measured choice for the current device, or cuBLASLt's first. What was looked up for a
// shape is remembered, so that later calls of it cost the host a few microseconds.
void run_gemm(const Gemm& gemm, cudaStream_t stream);

}  // namespace flce::cuda
