// SPDX-License-Identifier: Apache-2.0
// The problem that `flce bench` measures, from a problem text and the options --tokens, --hidden,
// --vocab, --dtype and --preset.
#pragma once

#include <CLI/CLI.hpp>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "flce/advice.hpp"
#include "flce/flce.hpp"

namespace flce::cli {

// As typed; what was not given is empty.
struct BenchProblem {
  std::vector<std::string> words;  // of the problem text
  std::optional<std::int64_t> tokens, hidden, vocab;
  std::optional<std::string> dtype;
  std::optional<std::string> preset;
};
void add_bench_problem(CLI::App& app, BenchProblem& problem);

// Sizes that nobody says are those of n1024_h256_v32000, the type is f32. Throws
// Error{kInvalidArgument} where text and options contradict each other.
ProblemText problem_text_of(const BenchProblem& problem);

// The model of --preset.
std::optional<ModelShape> model_of(const BenchProblem& problem);

}  // namespace flce::cli
