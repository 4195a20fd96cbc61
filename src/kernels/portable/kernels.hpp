// SPDX-License-Identifier: Apache-2.0
// The kernels as the host sees them: what a launch is given, and one function for each launch. A
// launch goes to a stream, allocates nothing and waits for nothing; errors of the launch itself are
// left for cudaGetLastError. Compiled as C++17 by nvcc and as C++20 by the host's compiler.
//
// Letters: N tokens, H hidden size, V vocabulary (here the local rows of a head).
#pragma once

#include <cuda_runtime_api.h>

#include <cstdint>

#include "flce/types.hpp"
#include "kernels/portable/state.hpp"

namespace flce::cuda {

// Strided numbers of any type; dtype kNone: absent.
struct Reals {
  const void* data = nullptr;
  std::int64_t stride = 1;
  Dtype dtype = Dtype::kNone;
};
struct RealsOut {
  void* data = nullptr;
  std::int64_t stride = 1;
  Dtype dtype = Dtype::kNone;
};
struct IntegersOut {
  std::int64_t* data = nullptr;  // null: absent
  std::int64_t stride = 1;
};

// Everything of a call that a kernel may look at: options, inputs and outputs other than the three
// matrices, and the workspace's small slots.
struct Call {
  std::int64_t tokens = 0;
  std::int64_t vocab = 0;
  std::int64_t vocab_total = 0;
  std::int64_t shard_begin = 0;
  bool is_f64 = false;  // the accumulation type
  Dtype dtype = Dtype::kF32;

  Reduction reduction = Reduction::kMean;
  std::int64_t ignore_index = -100;
  double label_smoothing = 0.0;
  double z_loss = 0.0;
  double softcap = 0.0;
  double scale = 1.0;
  double temperature = 1.0;
  double inverse_temperature = 1.0;  // of it, divided once
  bool has_normalizer = false;
  double normalizer = 1.0;
  std::int64_t shift = 0;
  std::int64_t sequence_length = 0;
  Upstream upstream = Upstream::kOne;
  bool unit_upstream = false;
  bool wants_entropy = false;
  bool wants_best = false;       // argmax or num_correct
  bool scales_gradient = false;  // f16: gradient_scale is in use

  Reals target, bias_in, class_weight_in, token_weight, temperatures, normalizer_in;
  Reals grad_output, grad_entropy;

  RealsOut loss, lse, logprob, entropy, z_part, topk_logprob;
  IntegersOut argmax, num_correct, num_valid, topk_index;  // stride of top-k: of a row
  std::int64_t topk = 0;

  TokenState* states = nullptr;             // (N)
  TokenGradient* gradients = nullptr;       // (N)
  Totals* totals = nullptr;                 // (1)
  GradientScale* gradient_scale = nullptr;  // (1)
  void* bias = nullptr;                     // (V) in the accumulation type; null: none
  void* class_weight = nullptr;             // likewise
  TopkCandidate* candidates = nullptr;      // (chunk, 2 * topk)
};

// Logits of tokens [first_token, first_token + rows) and vocabulary rows [first_col, first_col +
// cols), in the accumulation type; rows begin on 128 bytes.
struct LogitBlock {
  void* data = nullptr;
  std::int64_t row_stride = 0;
  std::int64_t first_token = 0;
  std::int64_t rows = 0;
  std::int64_t first_col = 0;
  std::int64_t cols = 0;
};

// The gradient of such a block in the problem's type. In place: data and rows are the logits' own.
struct GradientBlock {
  void* data = nullptr;
  std::int64_t row_stride = 0;  // in elements of the gradient's type
};

// tokens.cu: one thread a token, or one block for all of them.
void launch_widen_vectors(const Call& call, cudaStream_t stream);   // -> bias, class_weight
void launch_scan_targets(const Call& call, cudaStream_t stream);    // -> states, totals
void launch_gradient_scale(const Call& call, cudaStream_t stream);  // -> gradient_scale
void launch_combine(const Call& call, std::int64_t first, std::int64_t count, cudaStream_t stream);
void launch_coefficients(const Call& call, std::int64_t first, std::int64_t count,
                         cudaStream_t stream);
// The part of the coefficients that is known before the statistics are.
void launch_token_factors(const Call& call, std::int64_t first, std::int64_t count,
                          cudaStream_t stream);
void launch_reduce_loss(const Call& call, cudaStream_t stream);
void launch_export_stats(const Call& call, std::int64_t first, std::int64_t count, RowStats* to,
                         cudaStream_t stream);
void launch_merge_stats(const Call& call, std::int64_t first, std::int64_t count,
                        const RowStats* gathered, int num_shards, cudaStream_t stream);

// fused_rows.cu: whole rows of logits -> states.stats, gradients (whose factors are there) and the
// gradient in place of the logits.
void launch_fused_rows(const Call& call, const LogitBlock& logits, cudaStream_t stream);
// resident_rows.cu: the same in one pass, where a row fits into the shared memory of a cluster of
// blocks; false: it does not, and nothing was done.
bool launch_resident_rows(const Call& call, const LogitBlock& logits, cudaStream_t stream);

// rows.cu
// Statistics of a block -> states.stats; `is_first`: written, else merged.
void launch_row_stats(const Call& call, const LogitBlock& logits, bool is_first,
                      cudaStream_t stream);
// Logits and coefficients -> gradient.
void launch_row_gradient(const Call& call, const LogitBlock& logits, const GradientBlock& gradient,
                         cudaStream_t stream);

// topk.cu: merges the block's largest logits into the candidates of its tokens, whose first is row
// `first_row` of them; afterwards the candidates become log-probabilities in the outputs.
void launch_topk(const Call& call, const LogitBlock& logits, std::int64_t first_row, bool is_first,
                 cudaStream_t stream);
void launch_finish_topk(const Call& call, std::int64_t first_token, std::int64_t rows,
                        cudaStream_t stream);

// columns.cu
struct Rows {  // a matrix of any row stride
  const void* data = nullptr;
  std::int64_t row_stride = 0;
  Dtype dtype = Dtype::kNone;
};
struct RowsOut {
  void* data = nullptr;
  std::int64_t row_stride = 0;
  Dtype dtype = Dtype::kNone;
};
// Hidden rows of tokens with a target, zeros for the others and behind column `cols`. `gradients`
// decides instead where the products are those of a backward pass (null: states do).
void launch_pack_hidden(const Call& call, const Rows& from, void* to, std::int64_t to_stride,
                        std::int64_t first_token, std::int64_t rows, std::int64_t cols,
                        bool by_gradient, cudaStream_t stream);
// Zeros in the rows of tokens whose gradient is zero.
void launch_clear_inactive(const Call& call, const RowsOut& to, std::int64_t first_token,
                           std::int64_t rows, std::int64_t cols, cudaStream_t stream);
// acc[j] (+)= sum over tokens of the gradient's column j, in double.
void launch_column_sums(const Call& call, const GradientBlock& gradient, std::int64_t rows,
                        std::int64_t cols, bool is_first, double* acc, cudaStream_t stream);
// to (+)= acc.
void launch_store_bias(const double* acc, std::int64_t count, const RealsOut& to, bool accumulate,
                       cudaStream_t stream);
// to (+)= from, rounded once; `from` is in the accumulation type.
void launch_store_rows(const Rows& from, const RowsOut& to, std::int64_t rows, std::int64_t cols,
                       bool accumulate, cudaStream_t stream);
void launch_zero_rows(const RowsOut& to, std::int64_t rows, std::int64_t cols, cudaStream_t stream);
// to *= factor[0]; nothing is read or written beside the factor where it is 1.
void launch_scale_rows(const Reals& factor, const RowsOut& to, std::int64_t rows, std::int64_t cols,
                       cudaStream_t stream);
void launch_scale_vector(const Reals& factor, const RealsOut& to, std::int64_t count,
                         cudaStream_t stream);
// Random-looking values of standard deviation `size`; for measurements.
void launch_random_rows(const RowsOut& to, std::int64_t rows, std::int64_t cols, float size,
                        std::uint64_t seed, cudaStream_t stream);
// sums[0] = sum of (got - want)^2, sums[1] = sum of want^2, over all elements; partial sums of
// `blocks` blocks stand behind each other, 2 doubles each.
void launch_difference(const Rows& got, const Rows& want, std::int64_t rows, std::int64_t cols,
                       double* sums, int blocks, cudaStream_t stream);

// eager.cu: the passes of eager code, each over whole tensors.
void launch_eager_copy(const Call& call, const void* logits, void* copy, std::int64_t count,
                       cudaStream_t stream);
void launch_eager_logprobs(const Call& call, const void* copy, void* logprobs, std::int64_t rows,
                           cudaStream_t stream);
void launch_eager_losses(const Call& call, const void* logprobs, std::int64_t first_token,
                         std::int64_t rows, cudaStream_t stream);
void launch_eager_gradient(const Call& call, const void* logprobs, void* gradient,
                           std::int64_t first_token, std::int64_t rows, cudaStream_t stream);
void launch_eager_round(const Call& call, const void* gradient, void* rounded, std::int64_t count,
                        cudaStream_t stream);

}  // namespace flce::cuda
