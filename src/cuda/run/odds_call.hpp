// SPDX-License-Identifier: Apache-2.0
// A call by route hopper, for its verbs (odds.cpp).
#pragma once

#include <algorithm>

#include "cuda/odds_sizes.hpp"
#include "cuda/run/current.hpp"
#include "cuda/run/memory.hpp"
#include "cuda/run/products.hpp"
#include "kernels/hopper/kernels.hpp"

namespace flce::cuda::odds {

inline int int_of(std::int64_t n) { return static_cast<int>(n); }

inline int count_sms() {
  int count = 0;
  check_cuda(cudaDeviceGetAttribute(&count, cudaDevAttrMultiProcessorCount, current_device()),
             "asking for the number of multiprocessors");
  return count;
}

// The memory of a chunk under the names of its kernels.
class Odds {
 public:
  explicit Odds(const Step& step)
      : memory_(step),
        sizes_(odds_sizes_of(step.problem(), tiling_of(*step.plan), step.kept)),
        num_sms_(count_sms()) {}

  const Memory& memory() const { return memory_; }
  const OddsSizes& sizes() const { return sizes_; }
  const Problem& problem() const { return memory_.problem(); }
  const Call& call() const { return memory_.call(); }
  cudaStream_t stream() const { return memory_.stream(); }
  int num_sms() const { return num_sms_; }

  hopper::Chunk chunk(Range tokens) const {
    float* const numbers = token_rows();
    const std::int64_t stride = sizes_.part_stride;
    hopper::Chunk c;
    c.first = tokens.begin;
    c.rows = int_of(tokens.size());
    c.hidden = int_of(problem().hidden);
    c.tokens = {numbers, numbers + stride, reinterpret_cast<int*>(numbers + 2 * stride),
                numbers + 3 * stride, numbers + 4 * stride};
    c.smoothing = smoothing();
    return c;
  }
  hopper::Smoothing smoothing() const {
    if (sizes_.smoothing_rows == 0) return {};
    const std::int64_t hidden = problem().hidden;
    auto* const parts = reinterpret_cast<double*>(memory_.at(Slot::kSmoothing));
    double* const sums = parts + hopper::kSumSlices * (hidden + 1);
    auto* const class_sum = reinterpret_cast<float*>(sums + 2);
    return {parts, sums, sums + 1, class_sum, class_sum + hidden};
  }
  int* groups() const { return reinterpret_cast<int*>(token_rows()) + 5 * sizes_.part_stride; }
  // Of a backward pass that differentiates the entropy, else null.
  float2* gradient_rows() const {
    return sizes_.has_entropy_gradient ? reinterpret_cast<float2*>(memory_.at(Slot::kTokenRows))
                                       : nullptr;
  }
  std::byte* parts() const { return memory_.at(Slot::kTileStats); }
  // Rows of the vocabulary from one of the sample to the next.
  std::int64_t sample_step() const {
    constexpr std::int64_t kMostStride = (std::int64_t{1} << 31) - 1;
    return std::max<std::int64_t>(
        std::min(problem().vocab / sizes_.sample_cols, kMostStride / weight(0).row_stride), 1);
  }
  float* sample() const { return reinterpret_cast<float*>(memory_.at(Slot::kTileStats)); }
  std::byte* scaled_hidden() const { return memory_.at(Slot::kHiddenPacked); }
  std::byte* e() const { return sizes_.e_cols > 0 ? memory_.at(Slot::kKept) : nullptr; }
  hopper::Matrix e_matrix() const { return {e(), sizes_.e_cols}; }
  hopper::TargetLists lists() const {
    if (!problem().wants.grad_weight) return {};
    int* const first = groups() + sizes_.part_stride;
    return {first, first + problem().vocab};
  }
  double* bias_sums() const { return reinterpret_cast<double*>(memory_.at(Slot::kGradBiasAcc)); }
  const float* alpha() const { return &call().gradient_scale->alpha; }

  const MatrixView& hidden() const { return memory_.step().inputs->hidden; }
  Rows hidden_rows() const { return {hidden().data, hidden().row_stride, hidden().dtype}; }
  hopper::Matrix weight(std::int64_t first) const {
    const MatrixView& w = memory_.step().inputs->weight;
    return {row_of(w, first), stride_of(w)};
  }
  hopper::Matrix x(Range tokens) const {
    return {row_of(hidden(), tokens.begin), stride_of(hidden())};
  }

 private:
  float* token_rows() const {
    auto* const numbers = reinterpret_cast<float*>(memory_.at(Slot::kTokenRows));
    return numbers + (sizes_.has_entropy_gradient ? 2 * sizes_.part_stride : 0);
  }

  Memory memory_;
  OddsSizes sizes_;
  int num_sms_;
};

}  // namespace flce::cuda::odds
