// SPDX-License-Identifier: Apache-2.0
// The tile kernels for any x86-64-v2 or other processor.
#include "cpu/tile_impl.hpp"

namespace flce::cpu {
namespace {

struct Portable : PlainProducts {
  static constexpr const char* kName = "portable";
  static constexpr int kBytes = 16;
  static constexpr int kLeftWidth = 4;
  static constexpr int kRightVecs = 3;
};

}  // namespace

template <typename Acc>
const Kernels<Acc>& portable_kernels() {
  static constexpr Kernels<Acc> table = make_kernels<Portable, Acc>();
  return table;
}
template const Kernels<float>& portable_kernels<float>();
template const Kernels<double>& portable_kernels<double>();

}  // namespace flce::cpu
