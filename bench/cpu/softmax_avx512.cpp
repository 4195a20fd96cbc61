// SPDX-License-Identifier: Apache-2.0
#define FLCE_BENCH_ISA softmax_avx512
#define FLCE_BENCH_ISA_NAME "avx512"
#include "softmax_impl.hpp"
