// SPDX-License-Identifier: Apache-2.0
// The k largest logits of each token. Each worker lane keeps a list per token, so the tiles need no
// lock; lists are merged by (value, smaller index first), an order that does not depend on lanes.
#pragma once

#include "cpu/memory.hpp"

namespace flce::cpu {

template <typename Acc>
class TopkLanes {
 public:
  explicit TopkLanes(const Memory<Acc>& memory)
      : memory_(memory), k_(memory.problem().wants.topk), tokens_(memory.sizes().stats_tokens) {
    if (k_ == 0) return;
    indices_ = memory.template at<std::int64_t>(Slot::kTopk);
    values_ = reinterpret_cast<Acc*>(indices_ + memory.num_lanes() * tokens_ * k_);
  }

  void clear() const {
    const std::int64_t count = memory_.num_lanes() * tokens_ * k_;
    for (std::int64_t i = 0; i < count; ++i) indices_[i] = kNone;
  }

  // The logits u[0..cols) of block row `i`; column 0 is local vocabulary row `first_col`.
  void add(int lane, std::int64_t i, const Acc* u, std::int64_t cols,
           std::int64_t first_col) const {
    const std::int64_t list = (lane * tokens_ + i) * k_;
    for (std::int64_t j = 0; j < cols; ++j) insert(list, u[j], first_col + j);
  }

  // Merges the lanes' lists of block row `i` into the outputs of `token`, values still logits.
  void write(std::int64_t i, std::int64_t token) const {
    const std::int64_t list = i * k_;
    for (int lane = 1; lane < memory_.num_lanes(); ++lane) {
      const std::int64_t from = (lane * tokens_ + i) * k_;
      for (std::int64_t n = 0; n < k_ && indices_[from + n] != kNone; ++n) {
        insert(list, values_[from + n], indices_[from + n]);
      }
    }
    const MatrixView& value = memory_.outputs().topk_logprob;
    const MatrixView& index = memory_.outputs().topk_index;
    for (std::int64_t n = 0; n < k_; ++n) {
      const bool has = indices_[list + n] != kNone;  // fewer where logits are NaN
      if (value)
        static_cast<Acc*>(value.data)[token * value.row_stride + n] =
            has ? values_[list + n] : Acc(0);
      if (index) {
        static_cast<std::int64_t*>(index.data)[token * index.row_stride + n] =
            has ? indices_[list + n] : 0;
      }
    }
  }

 private:
  static constexpr std::int64_t kNone = -1;

  bool comes_before(Acc value, std::int64_t index, std::int64_t other) const {
    return indices_[other] == kNone || value > values_[other] ||
           (value == values_[other] && index < indices_[other]);
  }

  void insert(std::int64_t list, Acc value, std::int64_t index) const {
    if (value != value || !comes_before(value, index, list + k_ - 1)) return;
    std::int64_t n = list + k_ - 1;
    for (; n > list && comes_before(value, index, n - 1); --n) {
      values_[n] = values_[n - 1];
      indices_[n] = indices_[n - 1];
    }
    values_[n] = value;
    indices_[n] = index;
  }

  const Memory<Acc>& memory_;
  std::int64_t k_;
  std::int64_t tokens_;
  std::int64_t* indices_ = nullptr;
  Acc* values_ = nullptr;
};

}  // namespace flce::cpu
