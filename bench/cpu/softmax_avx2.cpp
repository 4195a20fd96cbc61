// SPDX-License-Identifier: Apache-2.0
#define FLCE_BENCH_ISA softmax_avx2
#define FLCE_BENCH_ISA_NAME "avx2"
#include "softmax_impl.hpp"
