// SPDX-License-Identifier: Apache-2.0
// The options of `flce run` as typed.
#pragma once

#include <CLI/CLI.hpp>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "common.hpp"
#include "flce/flce.hpp"
#include "run_shared.hpp"

namespace flce::cli {

struct RunOptions {
  std::string input;
  std::map<std::string, std::string> npy;  // tensor name -> path
  std::string output;
  std::string method = "auto";
  ChunkChoice chunk;
  std::uint64_t budget_bytes = 0;
  std::string reduction;  // empty: mean, or sum with a normalizer
  Options options;
  std::optional<std::int64_t> sequence_length;
  std::vector<std::string> outputs;
  bool no_grad_hidden = false;
  bool no_grad_weight = false;
  bool no_grad_bias = false;
  bool grad_weight_f32 = false;
  RouteChoice route;
  DeviceChoice device;
  bool quiet = false;
  bool json = false;
};

// Adds the command; `options` must outlive the parse.
CLI::App* add_run_options(CLI::App& app, RunOptions& options);
// Refuses options of which one would be ignored. Throws Error{kInvalidArgument}.
void check_run_options(const RunOptions& options);

}  // namespace flce::cli
