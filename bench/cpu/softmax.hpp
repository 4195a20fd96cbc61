// SPDX-License-Identifier: Apache-2.0
// The rivals' softmax pass: one row of logits becomes its gradient in place, in two passes over
// memory. Written as well as we can, so that the rivals are not beaten by their own glue.
#pragma once

#include <cstdint>

namespace flce::bench {

struct SoftmaxRow {
  void* row;  // `cols` logits on entry; the gradient, from its start, on return
  std::int64_t cols;
  std::int64_t target;
  float scale;  // of the gradient: 1 / N for the mean
};

// Each returns the loss of the row. Logits f32 or bf16, gradient f32 or bf16.
struct SoftmaxTable {
  const char* isa;
  float (*f32)(const SoftmaxRow& row);
  float (*f32_to_bf16)(const SoftmaxRow& row);
  float (*bf16)(const SoftmaxRow& row);
};

inline constexpr std::int64_t kSoftmaxMaxCols = std::int64_t{1} << 21;

const SoftmaxTable& softmax_table();  // the best that this processor has

namespace softmax_portable {
extern const SoftmaxTable kTable;
}
namespace softmax_avx2 {
extern const SoftmaxTable kTable;
}
namespace softmax_avx512 {
extern const SoftmaxTable kTable;
}

}  // namespace flce::bench
