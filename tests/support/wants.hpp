// SPDX-License-Identifier: Apache-2.0
// What a call may ask for, all of it, for tests that look at every output.
#pragma once

#include <cstdint>

#include "flce/problem.hpp"

namespace flce_test {

inline flce::Wants every_output(std::int64_t topk) {
  return {.grad_bias = true,
          .lse = true,
          .logprob = true,
          .entropy = true,
          .z_loss = true,
          .argmax = true,
          .num_correct = true,
          .num_valid = true,
          .topk = topk};
}

}  // namespace flce_test
