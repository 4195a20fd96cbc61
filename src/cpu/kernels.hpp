// SPDX-License-Identifier: Apache-2.0
// What one instruction set provides: blocks of packed products, the tile of logits that is
// exponentiated while it is in cache, and the packing of the logit gradient. Plain functions over
// plain structs; tile_*.cpp instantiates one template per instruction set.
//
// Packed operands are panels of words: [panel][word of the sum][width], zero beyond the last row. A
// word has the size of the accumulation type and holds one term of the sum in that type or, in the
// tables for vdpbf16ps, two neighbouring terms in bf16. The left operand's panels are `left_width`
// wide; the right one's are `right_width` wide, the last one only as wide as its whole vectors.
#pragma once

#include <cstdint>

#include "flce/problem.hpp"

namespace flce::cpu {

// Blocking, the same for every instruction set so that plans do not depend on the machine. All
// widths (left 4 or 8, right 12 to 48) divide these.
inline constexpr std::int64_t kTileVocab = 192;  // columns of a logits tile
inline constexpr std::int64_t kTileTokens = 96;  // rows of a logits tile: 72 KiB in f32, in L2
inline constexpr std::int64_t kInnerSum = 192;   // words of one pass over a block of the result
inline constexpr std::int64_t kPiece = 96;       // words summed in registers
inline constexpr std::int64_t kRowPad = 8;       // rows of packed left operands are padded to this
inline constexpr std::int64_t kColPad = 16;      // columns of packed right operands likewise

// Rows [0, rows) of a matrix, each with `depth` contiguous elements that are the sum's index.
struct PackRows {
  const void* data;
  std::int64_t row_stride;
  std::int64_t rows;
  std::int64_t depth;
};

// `depth` rows of a matrix, each with `cols` contiguous elements; the row is the sum's index.
struct PackCols {
  const void* data;
  std::int64_t row_stride;
  std::int64_t depth;
  std::int64_t cols;
  const float* row_scale;  // (depth) factors, or null: ones. A row of 0 is not read.
};

// c (rows, cols) (+)= left . right over `words`. c is written up to whole panels of rows and whole
// vectors of columns.
template <typename Acc>
struct Multiply {
  std::int64_t rows;
  std::int64_t cols;
  std::int64_t words;
  const Acc* left;
  const Acc* right;
  Acc* c;
  std::int64_t c_stride;
  bool add;
};

// How products become logits: z = scale * product + bias, u = softcap * tanh(z / softcap) / T.
template <typename Acc>
struct LogitMap {
  Acc scale;
  Acc softcap;  // 0: none
};

// Statistics of one row of one tile; `max` is finite.
template <typename Acc>
struct TileStats {
  Acc max;
  Acc others;
  Acc entropy;
  Acc weighted;  // sum of w_j * (max - u_j)
};

// One row of a tile of logits. `tile` holds products on entry, u on return; it is kTileVocab long.
// The exponentials are relative to offset_of(maximum), the sums of TileStats to the maximum.
template <typename Acc>
struct TileRow {
  Acc* tile;
  std::int64_t cols;        // valid columns
  const Acc* bias;          // (cols) or null
  const Acc* class_weight;  // (cols) or null: ones
  LogitMap<Acc> map;
  Acc inverse_temperature;
  std::int64_t target;  // column of the target in this tile, or -1
  bool wants_entropy;
  bool wants_weighted;
  bool wants_best;
  void* exponentials;  // (cols) of the kept type, the target's is 0; or null
  Dtype kept_dtype;    // of exponentials: kBF16, kF32 or kF64
  Acc* logits;         // (cols) z, or null
};

template <typename Acc>
struct TileResult {
  TileStats<Acc> stats;
  Acc target;  // u_y, if the target is in this tile
  Acc target_slope;
  Acc best;
  std::int64_t best_col;  // -1 if every logit is NaN
};

// What the gradient of one row needs (math/row.hpp RowGradient), in the accumulation type.
//
// Operands in bf16 are rounded when they are packed, so there the gradient is taken apart: the
// target's entry `t` never is an operand but a term of its own, in the accumulation type. Kept
// exponentials, rounded already, are packed unscaled, as the bits they have; `scale` and alpha then
// act on the row's sums for grad_hidden and on its hidden row for grad_weight.
template <typename Acc>
struct RowCoefficients {
  Acc max;
  Acc a;
  Acc q;
  Acc h;
  Acc k;
  Acc t;
  Acc scale;
  Acc inverse_temperature;
  bool active;          // false: the row's gradient is zero and nothing of it is read
  std::int64_t target;  // local column of the target, or -1
};

// Where the gradient of a block of logits comes from: tokens x columns of kept values. The columns
// lie in one tile.
template <typename Acc>
struct GradientBlock {
  const void* kept;          // first kept row of the block, first column of the kept range
  std::int64_t kept_stride;  // elements
  Dtype kept_dtype;
  bool is_logits;    // kept values are z, else exponentials
  bool is_apart;     // leave the targets' entries out
  bool is_unscaled;  // exponentials relative to their row's offset, without scale and alpha
  const RowCoefficients<Acc>* rows;
  const Acc* tile_max;  // exponentials: (tokens, num_tiles), row stride tile_stride
  std::int64_t tile_stride;
  const Acc* class_weight;  // by local column, or null
  LogitMap<Acc> map;
  Acc alpha;  // multiplies the packed gradient, not the bias sums
  std::int64_t num_tokens;
  std::int64_t first_col;  // local column of the block; kept column first_col - kept_first_col
  std::int64_t num_cols;
  std::int64_t kept_first_col;
};

template <typename Acc>
struct Kernels {
  const char* isa;
  std::int64_t left_width;
  std::int64_t right_width;
  std::int64_t terms;  // terms of the sum in a word: 1, or 2 in bf16

  // Matrices whose rows lie along the sum, as left and as right operand.
  void (*pack_left)(const PackRows& source, Dtype dtype, Acc* packed);
  void (*pack_right)(const PackRows& source, Dtype dtype, Acc* packed);
  // Matrices whose columns lie along the sum, as right operand. At most kTileVocab columns.
  void (*pack_right_cols)(const PackCols& source, Dtype dtype, Acc* packed);
  void (*multiply)(const Multiply<Acc>& block);
  TileResult<Acc> (*tile_row)(const TileRow<Acc>& row);
  // The sum runs over columns: the left operand of grad_hidden.
  void (*pack_gradient_by_token)(const GradientBlock<Acc>& block, Acc* packed);
  // The sum runs over tokens: the left operand of grad_weight. `bias_sums` (num_cols) or null: the
  // sum over tokens is added to it, without the targets' entries if they are apart.
  void (*pack_gradient_by_vocab)(const GradientBlock<Acc>& block, Acc* packed, double* bias_sums);
  // Multiply-adds in registers alone, `flops_per_round` each round; the result only keeps the
  // compiler from leaving them out.
  Acc (*fma_burst)(std::int64_t rounds);
  std::int64_t flops_per_round;

  std::int64_t words_of(std::int64_t depth) const { return (depth + terms - 1) / terms; }
};

// The table for a problem on the chosen instruction set: the best that the processor has, or
// FLCE_ISA. Throws Error{kInvalidArgument} if FLCE_ISA asks for what the processor lacks.
template <typename Acc>
const Kernels<Acc>& kernels(const Problem& problem);

// Whether operands in bf16 pairs serve a problem. Label smoothing and the entropy's gradient add
// terms to the exponentials that would be rounded with them, and a grad_weight in f32 would show
// that `fused` rounds twice (exponentials, and hidden rows times their scale).
inline bool fits_bf16_pairs(const Problem& p) {
  return p.dtype == Dtype::kBF16 && p.options.label_smoothing == 0.0 &&
         p.grad_entropy_dtype == Dtype::kNone && p.grad_weight_dtype != Dtype::kF32;
}

// The name of the chosen instruction set.
const char* isa_name();

// The tables of an instruction set; `bf16` is null where there are no bf16 products.
struct Tables {
  const char* name;
  const Kernels<float>* f32;
  const Kernels<double>* f64;
  const Kernels<float>* bf16;
};
// For tests: other tables than the processor's, from now on. Not while anything runs.
void use_tables(const Tables& tables);

// Defined in tile_<isa>.cpp.
template <typename Acc>
const Kernels<Acc>& portable_kernels();
template <typename Acc>
const Kernels<Acc>& avx2_kernels();
template <typename Acc>
const Kernels<Acc>& avx512_kernels();
const Kernels<float>& avx512bf16_kernels();

}  // namespace flce::cpu
