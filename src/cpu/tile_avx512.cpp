// SPDX-License-Identifier: Apache-2.0
// The tile kernels for AVX-512 F, BW, DQ and VL.
#include "cpu/tile_impl.hpp"

namespace flce::cpu {
namespace {

struct Avx512 : FmaProducts {
  static constexpr const char* kName = "avx512";
  static constexpr int kBytes = 64;
  static constexpr int kLeftWidth = 8;
  static constexpr int kRightVecs = 3;
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
