// SPDX-License-Identifier: Apache-2.0
// The sizes of a CUDA step's memory, from the problem and its tiling alone: used by the booking
// (book.cpp) and by the verbs (run/).
#pragma once

#include <cstdint>

#include "backend/backend.hpp"
#include "core/dtypes.hpp"

namespace flce::cuda {

// A row of logits begins on a cache line: 16-byte accesses and cuBLASLt's fastest kernels, for any
// V.
inline constexpr std::int64_t kLineBytes = 128;
// A row of packed hidden states begins on a multiple of 16 bytes.
inline constexpr std::int64_t kPackBytes = 16;
// Where no logits are kept they are made in pieces: about this many bytes, at most kPieceTokens
// tokens. Pieces that would stay in the L2 cache cost more in short products than they save in
// traffic: 16, 32, 64 and 128 MiB took 0.52, 0.45, 0.44 and 0.42 of the three plain products at
// 4096 x 4096 x 128256 on an H200.
inline constexpr std::int64_t kPieceBytes = std::int64_t{128} << 20;
inline constexpr std::int64_t kPieceTokens = 4096;
// The most that cuBLASLt may use beside its operands.
inline constexpr std::int64_t kGemmScratchBytes = std::int64_t{32} << 20;

// It must begin on a multiple of this, which slots do not; the booking has room for the shift.
inline constexpr std::int64_t kGemmScratchAlignment = 256;
inline std::byte* aligned_gemm_scratch(std::byte* booked) {
  const auto past = reinterpret_cast<std::uintptr_t>(booked) % kGemmScratchAlignment;
  return past == 0 ? booked : booked + (kGemmScratchAlignment - past);
}

// How grad_weight is summed over several chunks.
enum class WeightSum {
  kDirect,  // in the caller's buffer, which has the accumulation type (or there is one chunk)
  kBuffer,  // in the accumulation type, in the workspace
};

struct Sizes {
  std::int64_t acc_size = 4;  // bytes of the accumulation type
  std::int64_t in_size = 4;   // bytes of the problem's type, which the gradient is rounded to
  std::int64_t chunk = 1;     // tokens of a chunk
  std::int64_t num_chunks = 1;
  std::int64_t kept_rows = 0;    // rows of logits that are held ...
  std::int64_t kept_cols = 0;    // ... and logits of a row, to whole lines
  std::int64_t hidden_cols = 0;  // elements of a packed hidden row
  // Where nothing is kept: a piece of the logits.
  std::int64_t piece_tokens = 1;
  std::int64_t piece_cols = 1;
  bool has_own_gradient = false;  // the logit gradient does not take the logits' place
  WeightSum weight_sum = WeightSum::kDirect;
  std::int64_t sum_rows = 0;      // rows of grad_weight's accumulator
  bool sums_grad_hidden = false;  // grad_hidden has an accumulator
};

Sizes sizes_of(const Problem& problem, const Tiling& tiling, const Kept& kept);

// cuBLASLt's workspace for products of `rows` tokens.
std::uint64_t gemm_scratch_bytes(const Problem& problem, std::int64_t rows);

// Slots of whole 256 bytes all begin on such a multiple: what else is booked does not change how a
// product's operands are aligned, and so which of cuBLASLt's kernels takes it.
class Book {
 public:
  explicit Book(Ledger& ledger) : ledger_(ledger) {}
  void book(Slot slot, std::uint64_t bytes, Lifetime lifetime = kAlways) {
    ledger_.book(slot, round_up_bytes(bytes, kSlotBytes), lifetime);
  }
  void save(Slot slot, std::uint64_t bytes) {
    ledger_.save(slot, round_up_bytes(bytes, kSlotBytes));
  }

 private:
  static constexpr std::uint64_t kSlotBytes = 256;
  Ledger& ledger_;
};

// What every route keeps of tokens, and the small vectors.
void book_tokens(const Problem& problem, const Tiling& tiling, Book& ledger);

void book(const Problem& problem, const Tiling& tiling, const Kept& kept, Ledger& ledger);

// What `recompute` may take for slabs: with the tokens' state and statistics some 0.6 GB. A slab
// costs a pass over grad_hidden's sums, so it has a least size.
inline constexpr std::int64_t kSlabBytes = std::int64_t{550} * 1000 * 1000;
inline constexpr std::int64_t kMinSlab = 4096;
inline constexpr std::int64_t kMaxSlab = 32768;

inline Tiling tiling_of(const Plan& plan) {
  return {plan.method, plan.chunk, plan.slab, plan.route};
}

}  // namespace flce::cuda
