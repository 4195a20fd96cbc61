// SPDX-License-Identifier: Apache-2.0
// The commands of `flce`: each registers its options on the application, and main runs the action
// of the one that was called. An action returns the exit code: 0 fine, 1 the answer is no. Wrong
// usage and wrong input are exceptions; main turns them into one line on stderr and exit code 2.
#pragma once

#include <CLI/CLI.hpp>
#include <functional>

namespace flce::cli {

struct Command {
  CLI::App* app = nullptr;
  std::function<int()> action;
};

Command add_plan(CLI::App& app);
Command add_run(CLI::App& app);
Command add_verify(CLI::App& app);
Command add_bench(CLI::App& app);
Command add_train(CLI::App& app);
Command add_tune(CLI::App& app);
Command add_info(CLI::App& app);

}  // namespace flce::cli
