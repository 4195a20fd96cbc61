// SPDX-License-Identifier: Apache-2.0
// The tile kernels for AVX2 and FMA.
#include "cpu/tile_impl.hpp"

namespace flce::cpu {
namespace {

struct Avx2 : PlainProducts {
  static constexpr const char* kName = "avx2";
  static constexpr int kBytes = 32;
  static constexpr int kLeftWidth = 4;
  static constexpr int kRightVecs = 3;

  // Written out because GCC 12 takes forms of the instruction that overwrite a factor instead of
  // the sum, and then runs out of registers.
  template <typename Vec>
  [[gnu::always_inline]] static inline Vec multiply_add(Vec row, Vec columns, Vec sum) {
    if constexpr (sizeof(sum[0]) == 4) {
      asm("vfmadd231ps %2, %1, %0" : "+x"(sum) : "x"(row), "x"(columns));
    } else {
      asm("vfmadd231pd %2, %1, %0" : "+x"(sum) : "x"(row), "x"(columns));
    }
    return sum;
  }
};

}  // namespace

template <typename Acc>
const Kernels<Acc>& avx2_kernels() {
  static constexpr Kernels<Acc> table = make_kernels<Avx2, Acc>();
  return table;
}
template const Kernels<float>& avx2_kernels<float>();
template const Kernels<double>& avx2_kernels<double>();

}  // namespace flce::cpu
