// SPDX-License-Identifier: Apache-2.0
#define FLCE_BENCH_ISA softmax_portable
#define FLCE_BENCH_ISA_NAME "portable"
#include "softmax_impl.hpp"
