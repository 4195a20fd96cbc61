// SPDX-License-Identifier: Apache-2.0
// The tile kernels for AVX2 and FMA.
#include "cpu/tile_impl.hpp"

namespace flce::cpu {
namespace {

struct Avx2 : FmaProducts {
  static constexpr const char* kName = "avx2";
  static constexpr int kBytes = 32;
  static constexpr int kLeftWidth = 4;
  static constexpr int kRightVecs = 3;
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
