// SPDX-License-Identifier: Apache-2.0
// The kernels of AVX-512 and of AVX-512-BF16 for processors without them: the same templates on
// 64-byte vectors that the compiler cuts in halves (or quarters), and vdpbf16ps in plain
// arithmetic. They show that packing, tails and order are right; speed is another matter.
#pragma once

#include "cpu/kernels.hpp"

namespace flce::cpu {

template <typename Acc>
const Kernels<Acc>& wide_kernels();
const Kernels<float>& wide_pairs_kernels();

// Makes the library use them if FLCE_TEST_TABLES is "wide"; the runner calls it.
void use_wide_tables_if_asked();

}  // namespace flce::cpu
