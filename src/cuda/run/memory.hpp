// SPDX-License-Identifier: Apache-2.0
// A CUDA step as its verbs see it: slots as device addresses, and what the kernels are given.
#pragma once

#include <cstdint>

#include "backend/backend.hpp"
#include "cuda/run/gemm.hpp"
#include "core/int_math.hpp"
#include "cuda/sizes.hpp"
#include "kernels/portable/kernels.hpp"

namespace flce::cuda {

inline Reals reals(const VectorView& view) { return {view.data, view.stride, view.dtype}; }
inline RealsOut reals_out(const VectorView& view) { return {view.data, view.stride, view.dtype}; }

class Memory {
 public:
  explicit Memory(const Step& step);

  const Step& step() const { return step_; }
  const Sizes& sizes() const { return sizes_; }
  const Problem& problem() const { return step_.problem(); }
  const Call& call() const { return call_; }
  cudaStream_t stream() const { return static_cast<cudaStream_t>(step_.stream); }

  std::byte* at(Slot slot) const;
  std::byte* scratch() const { return aligned_gemm_scratch(at(Slot::kGemmScratch)); }
  std::uint64_t scratch_bytes() const {
    return gemm_scratch_bytes(problem(), sizes_.chunk) - kGemmScratchAlignment;
  }
  // Logits of these tokens and vocabulary rows, kept from row `row` on.
  LogitBlock logits(Range tokens, Range vocab, std::int64_t row) const;
  // Where the gradient of logits that are kept from row `row` on goes.
  GradientBlock gradient(std::int64_t row) const;

 private:
  void note_use(const SlotPlace& place) const;

  const Step& step_;
  Sizes sizes_;
  Call call_;
};

// The parts of a Call that come from the problem and the views alone.
Call call_of(const Step& step);

}  // namespace flce::cuda
