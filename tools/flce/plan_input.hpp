// SPDX-License-Identifier: Apache-2.0
// From the options of `flce plan` to what the library is asked. Every wrong combination is refused
// here, with a sentence; nothing is printed.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "common.hpp"
#include "flce/advice.hpp"
#include "flce/flce.hpp"

namespace flce::cli {

// As typed; what was not given is empty.
struct PlanOptions {
  std::string text;  // "n8192_h4096_v128256 bf16 mean"
  std::optional<std::int64_t> tokens, sequences, sequence_length, hidden, vocab, shards;
  std::optional<std::string> dtype, grad_weight, preset, config, method, device_caps;
  ChunkChoice chunk;
  std::uint64_t budget_bytes = 0;
  std::uint64_t memory_bytes = 0;
  std::string mode = "train";
  std::string device = "auto";
  RouteChoice route;
  bool checkpointing = false;
  bool json = false;
};

struct PlanQuestion {
  Problem problem;
  PlanRequest request;
  DeviceCaps caps;
  bool at_hand = true;  // false: the device was described, not found
  std::optional<ModelShape> model;
  std::string model_note;  // why a config.json does not give a model, empty otherwise
  AdviceRequest advice;    // its model pointer is set by whoever keeps the question
};

// Throws Error{kInvalidArgument}.
PlanQuestion plan_question(const PlanOptions& options);

}  // namespace flce::cli
