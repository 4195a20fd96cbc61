// SPDX-License-Identifier: Apache-2.0
// `flce train TEXT --demo`: the same training with each method, then one step of a real head's
// size; predicted and measured bytes, times, and how many digits of the losses agree.
#pragma once

#include "train_loop.hpp"

namespace flce::cli {

struct DemoSettings {
  TrainSettings train;           // the method is set by the demo
  double seconds_limit = 180.0;  // the bf16 part of the head step is left out when time is short
};

// Returns the exit code: 1 if losses that must be equal are not.
int run_demo(const Corpus& corpus, const DemoSettings& settings);

}  // namespace flce::cli
