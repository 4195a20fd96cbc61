// SPDX-License-Identifier: Apache-2.0
// The environment variables of FLCE, read once and in one place.
//   FLCE_NUM_THREADS  worker threads of the CPU backend (1..1024)
//   FLCE_ISA          portable | avx2 | avx512 | avx512bf16: the CPU kernels to use
//   FLCE_CHECK        1: RunOptions::check_targets of every call (0 or empty: as the caller says)
#pragma once

#include <string>

namespace flce {

struct Environment {
  int num_threads = 0;  // 0: not given
  std::string isa;      // empty: not given
  bool check_targets = false;
};

// Throws Error{kInvalidArgument} for a value that means nothing; the message says what would work.
const Environment& environment();

}  // namespace flce
