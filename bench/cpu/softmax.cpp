// SPDX-License-Identifier: Apache-2.0
#include "softmax.hpp"

namespace flce::bench {

const SoftmaxTable& softmax_table() {
#if defined(__x86_64__)
  if (__builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
      __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl")) {
    return softmax_avx512::kTable;
  }
  if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma")) return softmax_avx2::kTable;
#endif
  return softmax_portable::kTable;
}

}  // namespace flce::bench
