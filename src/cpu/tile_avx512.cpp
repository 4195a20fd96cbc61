// SPDX-License-Identifier: Apache-2.0
// The tile kernels for AVX-512 F, BW, DQ and VL.
#include "cpu/tile_impl.hpp"

namespace flce::cpu {
namespace {

struct Avx512 : PlainProducts {
  static constexpr const char* kName = "avx512";
  static constexpr int kBytes = 64;
  static constexpr int kLeftWidth = 8;
  static constexpr int kRightVecs = 3;

  // Written out for the reason given in tile_avx2.cpp.
  template <typename Vec>
  [[gnu::always_inline]] static inline Vec multiply_add(Vec row, Vec columns, Vec sum) {
    if constexpr (sizeof(sum[0]) == 4) {
      asm("vfmadd231ps %2, %1, %0" : "+v"(sum) : "v"(row), "v"(columns));
    } else {
      asm("vfmadd231pd %2, %1, %0" : "+v"(sum) : "v"(row), "v"(columns));
    }
    return sum;
  }
};

}  // namespace

template <typename Acc>
const Kernels<Acc>& avx512_kernels() {
  static constexpr Kernels<Acc> table = make_kernels<Avx512, Acc>();
  return table;
}
template const Kernels<float>& avx512_kernels<float>();
template const Kernels<double>& avx512_kernels<double>();

}  // namespace flce::cpu
