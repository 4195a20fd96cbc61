// SPDX-License-Identifier: Apache-2.0
#include "support/wide_tiles.hpp"

#include <cstdio>
#include <cstdlib>
#include <cstring>

#include "cpu/tile_impl.hpp"

namespace flce::cpu {
namespace {

struct Wide : PlainProducts {
  static constexpr const char* kName = "64 bytes in halves";
  static constexpr int kBytes = 64;
  static constexpr int kLeftWidth = 8;
  static constexpr int kRightVecs = 3;
};

struct WidePairs {
  static constexpr const char* kName = "vdpbf16ps in halves";
  static constexpr int kBytes = 64;
  static constexpr int kLeftWidth = 8;
  static constexpr int kRightVecs = 3;
  static constexpr int kTerms = 2;

  // vdpbf16ps in plain arithmetic, but that it keeps denormals.
  template <typename Vec>
  static Vec multiply_add(Vec row, Vec columns, Vec sum) {
    typedef std::uint32_t Bits __attribute__((vector_size(64)));
    const auto r = reinterpret_cast<Bits>(row);
    const auto c = reinterpret_cast<Bits>(columns);
    const auto low = [](Bits b) { return reinterpret_cast<Vec>(b << 16); };
    const auto high = [](Bits b) { return reinterpret_cast<Vec>(b & 0xffff0000u); };
    return high(r) * high(c) + (low(r) * low(c) + sum);
  }
};

}  // namespace

template <typename Acc>
const Kernels<Acc>& wide_kernels() {
  static constexpr Kernels<Acc> table = make_kernels<Wide, Acc>();
  return table;
}
template const Kernels<float>& wide_kernels<float>();
template const Kernels<double>& wide_kernels<double>();

const Kernels<float>& wide_pairs_kernels() {
  static constexpr Kernels<float> table = make_kernels<WidePairs, float>();
  return table;
}

void use_wide_tables_if_asked() {
  const char* wanted = std::getenv("FLCE_TEST_TABLES");
  if (wanted == nullptr) return;
  if (std::strcmp(wanted, "wide") != 0) {
    std::fprintf(stderr, "FLCE_TEST_TABLES is '%s'; known: wide\n", wanted);
    std::abort();
  }
  use_tables({"wide", &wide_kernels<float>(), &wide_kernels<double>(), &wide_pairs_kernels()});
}

}  // namespace flce::cpu
