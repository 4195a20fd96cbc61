// SPDX-License-Identifier: Apache-2.0
// The tile kernels for bf16 operands on AVX-512 with vdpbf16ps: two terms of the sum in a word.
#include <immintrin.h>

#include "cpu/tile_impl.hpp"

namespace flce::cpu {
namespace {

struct Avx512Bf16 {
  static constexpr const char* kName = "avx512bf16";
  static constexpr int kBytes = 64;
  static constexpr int kLeftWidth = 8;
  static constexpr int kRightVecs = 3;
  static constexpr int kTerms = 2;

  // sum + row[0] * column[0] + row[1] * column[1] in f32, denormals taken as zero.
  template <typename Vec>
  [[gnu::always_inline]] static inline Vec multiply_add(Vec row, Vec columns, Vec sum) {
    return reinterpret_cast<Vec>(_mm512_dpbf16_ps(reinterpret_cast<__m512>(sum),
                                                  reinterpret_cast<__m512bh>(row),
                                                  reinterpret_cast<__m512bh>(columns)));
  }
};

}  // namespace

const Kernels<float>& avx512bf16_kernels() {
  static constexpr Kernels<float> table = make_kernels<Avx512Bf16, float>();
  return table;
}

}  // namespace flce::cpu
