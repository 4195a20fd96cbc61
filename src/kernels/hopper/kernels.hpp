// SPDX-License-Identifier: Apache-2.0
// The kernels of the odds form (docs/kernels/hopper.md) as the host sees them, for compute
// capability 9.0 and bf16. A launch goes to a stream, allocates nothing and waits for nothing;
// errors of the launch itself are left for cudaGetLastError, or returned where a launch needs the
// driver's help before it. Compiled as C++17 by nvcc and as C++20 by the host's compiler.
//
// Letters: C tokens of a chunk, H hidden size, V vocabulary rows (of a slab). With u_ij the logits
// and c_i a row's offset, E_ij = e^(u_ij - c_i) for j != y_i and 0 at the target.
#pragma once

#include <cuda_runtime_api.h>

#include <cstddef>
#include <cstdint>

#include "kernels/hopper/tile_sizes.hpp"
#include "kernels/portable/kernels.hpp"

namespace flce::cuda::hopper {

// One number of each kind for a chunk's tokens, in the workspace.
struct TokenRows {
  float* factor = nullptr;       // of a product's result to a power of two: scale * log2 e / T
  float* offset = nullptr;       // c_i in the same unit
  int* target = nullptr;         // a row of the head, -1: none
  float* row_scale = nullptr;    // v_i: the gradient is v_i E_ij ...
  float* target_term = nullptr;  // ... and t_i at the target; both 0: no gradient, by selection
};

// Of the columns of one tile of a row, the target's left out of the sum and in the largest one.
struct TilePart {
  float sum;      // of 2^(exponent)
  float largest;  // exponent, never NaN
};

// The same where the call has options (LogitOptions).
struct OptionsPart {
  float sum;      // of 2^(exponent)
  float entropy;  // of 2^(exponent) * exponent
  float best;     // the largest logit, before the temperature; kNoLogit: none that is finite
  int best_col;   // its first column, -1: none
};
inline constexpr float kNoLogit = -3.0e38f;

// Label smoothing: the gradient of logit (i, j) has -q_i w_j (RowGradient) beside all else, for all
// j: an outer product. All null: the call has none.
struct Smoothing {
  double* parts = nullptr;      // (kSumSlices, H + 1): scratch
  double* bias_sum = nullptr;   // (1): sum_j w_j b_j
  double* token_sum = nullptr;  // (1): sum_i q_i over the chunk
  float* class_sum = nullptr;   // (H): sum_j w_j W_j
  float* token_term = nullptr;  // (C): q_i
};

// Whether a call has options, as Exponentials::has_options.
FLCE_HD inline bool has_options(const Call& call) {
  return call.bias != nullptr || call.softcap != 0.0 || call.wants_entropy || call.wants_best;
}

// From a product to a logit before the temperature: softcap * tanh((scale * product + bias) /
// softcap). TokenRows::factor is then log2 e / T.
struct LogitOptions {
  float scale = 1.0f;
  float softcap = 0.0f;  // 0: none
  float inverse_softcap = 0.0f;
  const float* bias = nullptr;  // from the slab's first column on; null: none
  // (C): the gradient is 2^exponent * (x + y * exponent), and that is what is stored; null: the
  // exponentials are.
  const float2* gradient = nullptr;
};

inline LogitOptions logit_options_of(const Call& call, std::int64_t first_col) {
  LogitOptions options;
  options.scale = static_cast<float>(call.scale);
  options.softcap = static_cast<float>(call.softcap);
  if (call.softcap != 0.0) options.inverse_softcap = static_cast<float>(1.0 / call.softcap);
  if (call.bias != nullptr) options.bias = static_cast<const float*>(call.bias) + first_col;
  return options;
}

// A bf16 matrix for the tensor memory accelerator: data on 16 bytes, row stride a multiple of 8.
struct Matrix {
  const void* data = nullptr;
  std::int64_t row_stride = 0;  // elements
};

// exponentials.cu, statistics.cu: x (C, H), w (V, H) -> E (C, V), bf16, and the parts of each tile
// of columns: parts[tile * part_stride + row]. With a softcap E is stored times its slope, which
// the sums are without.
struct Exponentials {
  Matrix x, w;
  void* e = nullptr;  // null: statistics alone
  std::int64_t e_row_stride = 0;
  int rows = 0, cols = 0, hidden = 0;
  int first_col = 0;  // the slab's place in the vocabulary
  TokenRows tokens;
  void* parts = nullptr;  // TilePart, with options OptionsPart; null: no statistics
  std::int64_t part_stride = 0;
  const int* run_if = nullptr;  // device memory: nothing is done where it is 0; null: always
  bool has_options = false;
  LogitOptions options;
};
cudaError_t launch_exponentials(const Exponentials& args, int num_sms, cudaStream_t stream);
cudaError_t launch_statistics(const Exponentials& args, int num_sms, cudaStream_t stream);

// exponentials_with_options.cu, statistics_with_options.cu: what these two launch for a call with
// options.
cudaError_t launch_exponentials_with_options(const Exponentials& args, int num_sms,
                                             cudaStream_t stream);
cudaError_t launch_statistics_with_options(const Exponentials& args, int num_sms,
                                           cudaStream_t stream);
// An f32 sum for each element of a bf16 matrix (halves.cuh).
struct Halves {
  void* upper = nullptr;
  std::int64_t upper_row_stride = 0;  // elements
  void* lower = nullptr;
  std::int64_t lower_row_stride = 0;
};

// How many parts the sums over the vocabulary are made in (tile_sizes.hpp, hidden_parts) and, for
// more than one, what they leave for each other: parts_bytes of memory on 128 bytes.
struct Parts {
  int count = 1;
  void* scratch = nullptr;
  std::size_t bytes = 0;
};

// grad_hidden.cu: alpha * (v_i * (E W)_i + t_i * W[y_i]) -> bf16, rounded once.
struct GradHidden {
  Matrix e, w;
  void* out = nullptr;  // holds what launch_gather_targets leaves
  std::int64_t out_row_stride = 0;
  int rows = 0, cols = 0, hidden = 0;
  TokenRows tokens;
  Smoothing smoothing;           // grad_hidden -= alpha * q_i * class_sum
  const float* alpha = nullptr;  // device memory
  Parts parts;
};
cudaError_t launch_grad_hidden(const GradHidden& args, int num_sms, cudaStream_t stream);

// sum_grad_hidden.cu: E W of a slab, added to the sum over slabs unless it is the first. `args`:
// the operands and sizes alone.
cudaError_t launch_sum_grad_hidden(const GradHidden& args, const Halves& sum, bool is_first,
                                   int num_sms, cudaStream_t stream);

// For each row of the vocabulary its tokens among a chunk's: the first one and how many there are
// beside it, as far as their term is not zero; both -1: none. (V) each.
struct TargetLists {
  int* first = nullptr;
  int* before_last = nullptr;
};

// grad_weight.cu: alpha * E^T Xs -> bf16, rounded once; the rows that are someone's target wait for
// launch_finish_targets, their lower halves in a table.
struct GradWeight {
  Matrix e;                // (C, V)
  Matrix xs;               // (C, H): v_i * x_i
  int smoothing_rows = 0;  // of both, behind the C
  void* out = nullptr;
  std::int64_t out_row_stride = 0;
  int rows = 0, cols = 0, hidden = 0;
  const int* first_token = nullptr;  // (V): TargetLists::first from the slab's first column on
  // min(C, V) rows of H 16-bit halves: a row for each token, or for each column where there are
  // fewer columns.
  void* lower = nullptr;
  const float* alpha = nullptr;  // device memory
};
cudaError_t launch_grad_weight(const GradWeight& args, int num_sms, cudaStream_t stream);

// sum_grad_weight.cu: alpha * E^T Xs, added to the sum unless it is the first; the last one rounds
// the sum to bf16 in the place of the upper halves. `args` without targets.
cudaError_t launch_sum_grad_weight(const GradWeight& args, const Halves& sum, bool is_first,
                                   bool is_last, int num_sms, cudaStream_t stream);

// offsets.cu
// A chunk of the call: tokens [first, first + rows).
struct Chunk {
  std::int64_t first = 0;
  int rows = 0;
  int hidden = 0;
  TokenRows tokens;
  Smoothing smoothing;
};
// Offsets from the products with a sample of vocabulary rows, each `sample_step` behind the one
// before (f32; NaN loses), and from the target's logit, which is made here (-> states.stats), as is
// label smoothing's sum of logits; also factor and target.
void launch_offsets(const Call& call, const Chunk& chunk, const Rows& x, const Matrix& w,
                    const float* sample, int sample_cols, std::int64_t sample_step,
                    cudaStream_t stream);
// Offsets for a backward pass, whose coefficients are known: E_ij is the gradient itself but for
// its sign, which is what row_scale then is. Nothing is rounded beside E. With `gradient`, which is
// written for LogitOptions::gradient, the sign is in E too.
void launch_known_offsets(const Call& call, const Chunk& chunk, float2* gradient,
                          cudaStream_t stream);
// Parts -> states.stats. A row whose exponents leave the range in which bf16 and f32 hold them gets
// the right offset and marks its group of rows in `groups` (is_last: does not; only marked groups
// are looked at).
void launch_finish_rows(const Call& call, const Chunk& chunk, const void* parts, int num_tiles,
                        std::int64_t part_stride, int* groups, bool is_last, cudaStream_t stream);
inline constexpr int kGroupRows = 1024;

// rows.cu
// gradients -> row_scale and target_term; xs = v_i * x_i in bf16, 0 without a gradient. xs may be
// null. is_unit: with launch_known_offsets. The tokens are added to the lists of their targets, if
// there are any; an empty list is -1 throughout.
void launch_scaled_rows(const Call& call, const Chunk& chunk, const Rows& x, void* xs,
                        std::int64_t xs_stride, const TargetLists& lists, bool is_unit,
                        cudaStream_t stream);
// Zeros in the exponentials of rows without a gradient that may hold NaN: a product of 0 and NaN
// would reach all of grad_weight.
void launch_clear_rows(const Call& call, const Chunk& chunk, void* e, std::int64_t e_row_stride,
                       int cols, cudaStream_t stream);
// W[y_i] -> row i, where its term t_i is not zero.
void launch_gather_targets(const Chunk& chunk, const Matrix& w, void* to, std::int64_t to_stride,
                           cudaStream_t stream);
// grad_hidden from sums over slabs: alpha * (v_i * sums_i + t_i * W[y_i] - q_i * class_sum) ->
// bf16 in the place of the upper halves.
void launch_store_grad_hidden(const Chunk& chunk, const Halves& sums, const Matrix& w,
                              const float* alpha, cudaStream_t stream);

// target_sums.cu
// For each target among the columns [first_col, first_col + cols) alpha times the sum of t_i * x_i
// over its tokens, in their order, added to row `column - first_col` of f32 sums.
void launch_add_target_sums(const Chunk& chunk, const Rows& x, const TargetLists& lists,
                            int first_col, int cols, const float* alpha, const RowsOut& to,
                            cudaStream_t stream);
void launch_add_target_sums(const Chunk& chunk, const Rows& x, const TargetLists& lists,
                            int first_col, int cols, const float* alpha, const Halves& to,
                            cudaStream_t stream);
// The same behind grad_weight.cu, whose table is to.lower: the rows of targets become bf16.
void launch_finish_targets(const Chunk& chunk, const Rows& x, const TargetLists& lists,
                           int first_col, int cols, const float* alpha, const Halves& to,
                           cudaStream_t stream);

// column_sums.cu: acc[j] (+)= the sum over the chunk's tokens of v_i E_ij - q_i w_j, and of t_i
// where column first_col + j is the target, without the power of two in the coefficients. In
// double, in one order.
void launch_column_sums(const Call& call, const Chunk& chunk, const Matrix& e, int first_col,
                        int cols, bool is_first, double* acc, cudaStream_t stream);

// smoothing.cu
// w (V, H) and the class weights -> class_sum, bias_sum.
void launch_class_sums(const Call& call, const Matrix& w, int hidden, const Smoothing& to,
                       cudaStream_t stream);
// gradients and x -> token_sum and, behind the chunk's rows of `xs` (null: not wanted), the pieces
// of -sum_i q_i x_i.
void launch_token_sums(const Call& call, const Chunk& chunk, const Rows& x, void* xs,
                       std::int64_t xs_stride, cudaStream_t stream);
// The pieces of the class weights of columns [first_col, first_col + cols): kSmoothingRows rows.
void launch_class_rows(const Call& call, int first_col, int cols, void* e,
                       std::int64_t e_row_stride, cudaStream_t stream);

}  // namespace flce::cuda::hopper
