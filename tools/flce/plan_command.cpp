// SPDX-License-Identifier: Apache-2.0
// The command that was typed, with another request: what a user can paste to see an offer.
#include <fmt/format.h>

#include "plan_answer.hpp"

namespace flce::cli {
namespace {

// In quotes where a shell would take it for more than a word.
std::string quoted(const std::string& word) {
  constexpr const char* kPlain =
      "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_./:=+,-";
  if (!word.empty() && word.find_first_not_of(kPlain) == std::string::npos) return word;
  std::string text = "'";
  for (const char c : word) text += c == '\'' ? std::string("'\\''") : std::string(1, c);
  return text + "'";
}

std::string problem_options(const PlanOptions& o) {
  std::string text;
  const auto add = [&](const char* name, const auto& value) {
    if (value) text += fmt::format(" {} {}", name, quoted(fmt::format("{}", *value)));
  };
  add("--preset", o.preset);
  add("--config", o.config);
  add("--tokens", o.tokens);
  add("--sequences", o.sequences);
  add("--sequence-length", o.sequence_length);
  add("--hidden", o.hidden);
  add("--vocab", o.vocab);
  add("--dtype", o.dtype);
  add("--grad-weight", o.grad_weight);
  return text;
}

}  // namespace

Spelling spelling_of(const PlanOptions& options) {
  return options.text.empty() ? Spelling::kOptions : Spelling::kWords;
}

std::string plan_command(const PlanOptions& o, const Problem& problem, const PlanRequest& request) {
  std::string text = "flce plan";
  if (o.text.empty()) {
    text += problem_options(o);
    if (o.checkpointing) text += " --checkpointing";
    if (o.shards) text += fmt::format(" --shards {}", *o.shards);
  } else {
    text += ' ' + quoted(format_problem(problem, request));
  }
  if (o.device_caps) text += " --device-caps " + quoted(*o.device_caps);
  if (o.device != "auto") text += " --device " + quoted(o.device);
  if (o.memory_bytes > 0) text += fmt::format(" --memory {}", o.memory_bytes);
  if (o.text.empty()) text += ' ' + spell_request(request, Spelling::kOptions);
  return text;
}

}  // namespace flce::cli
