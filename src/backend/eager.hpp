// SPDX-License-Identifier: Apache-2.0
// The tensors that eager code holds for a piece of the logits, and where they stand: one function
// for planning (src/plan/book.cpp) and for running (src/cpu/eager.cpp).
//
//   logits         (N, V) in the inputs' type; with gradients the graph keeps them for every chunk
//   copy           (C, V) wide, of 16-bit logits only
//   logprobs       (C, V) wide
//   gradient       (C, V) wide, with gradients only
//   rounded        (C, V) the gradient in the inputs' type, of 16-bit inputs only
//
// Checked against the published 36.02 GB of N=16384, V=128256, H=4096 in bf16: 16 bytes a logit,
// inputs and gradients make 35.99.
//
// What the products need beside them stands where no tensor is alive at that time: the logits'
// product behind the copy, the gradients' products in place of copy and logprobs, which are dead by
// then. Only where that is too small (few logits) is the room larger than its tensors.
#pragma once

#include <algorithm>
#include <cstdint>

#include "core/dtypes.hpp"
#include "core/int_math.hpp"
#include "flce/problem.hpp"

namespace flce {

constexpr bool is_eager(Method method) {
  return method == Method::kNaiveEager || method == Method::kChunkedEager;
}

// Bytes a logit.
struct EagerLogit {
  std::int64_t all_bytes = 0;   // when memory peaks
  std::int64_t kept_bytes = 0;  // the part that the graph keeps for every chunk
};

inline EagerLogit eager_logit(const Problem& problem) {
  const std::int64_t in = size_of(problem.dtype);
  const std::int64_t wide = size_of(accumulation_dtype(problem.dtype));
  const std::int64_t forward = in < wide ? in + 2 * wide : 2 * wide;
  if (!problem.wants.any_gradient()) return {forward, 0};
  return {forward + (in < wide ? wide + in : wide), in};
}

// Slot::kKept holds the logits that the graph keeps, Slot::kGradientPacked one chunk's rest.
// Offsets are into the latter. Saturating, as every booking is.
struct EagerRoom {
  std::uint64_t copy = 0;
  std::uint64_t logprobs = 0;
  std::uint64_t gradient = 0;
  std::uint64_t rounded = 0;
  std::uint64_t logits = 0;           // without gradients: one chunk's logits
  std::uint64_t logits_products = 0;  // the scratch of the logits' product ...
  std::uint64_t grads_products = 0;   // ... and of the gradients' products
  std::uint64_t bytes = 0;
};

// `chunk` tokens; `scratch_bytes` is what the device's products need.
inline EagerRoom eager_room(const Problem& p, std::int64_t chunk, std::uint64_t scratch_bytes) {
  constexpr std::uint64_t kAlign = 64;
  const std::int64_t in = size_of(p.dtype);
  const std::int64_t wide = size_of(accumulation_dtype(p.dtype));
  const std::uint64_t narrow_bytes = bytes_of(chunk, p.vocab, in);
  const std::uint64_t wide_bytes = bytes_of(chunk, p.vocab, wide);
  const std::uint64_t copy_bytes = in < wide ? wide_bytes : 0;
  EagerRoom room;
  room.logprobs = copy_bytes;
  const std::uint64_t dead = saturating_add(copy_bytes, wide_bytes);
  room.logits_products = round_up_bytes(copy_bytes, kAlign);
  std::uint64_t end = dead;
  if (p.wants.any_gradient()) {
    room.gradient = scratch_bytes > dead ? round_up_bytes(scratch_bytes, kAlign) : dead;
    room.rounded = saturating_add(room.gradient, wide_bytes);
    end = in < wide ? saturating_add(room.rounded, narrow_bytes) : room.rounded;
  } else if (in < wide) {
    room.logits = dead;
    end = saturating_add(dead, narrow_bytes);
  } else {
    // The product writes wide logits where they stay.
    room.logprobs = wide_bytes;
    room.logits_products = round_up_bytes(wide_bytes, kAlign);
    end = saturating_add(wide_bytes, wide_bytes);
  }
  room.bytes = std::max(end, saturating_add(room.logits_products, scratch_bytes));
  return room;
}

}  // namespace flce
