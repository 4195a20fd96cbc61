// SPDX-License-Identifier: Apache-2.0
// Everything that `flce plan` prints, computed once; plan_text.cpp and plan_json.cpp only format
// it.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "plan_input.hpp"

namespace flce::cli {

// The methods in the order in which they are printed.
inline constexpr std::array kPrintedMethods{Method::kFused,      Method::kRecompute,
                                            Method::kChunked,    Method::kNaive,
                                            Method::kNaiveEager, Method::kChunkedEager};

struct PlanAnswer {
  PlanQuestion question;
  Plan report;
  std::uint64_t hidden_bytes = 0;
  std::uint64_t weight_bytes = 0;
  std::uint64_t logits_bytes = 0;  // in hidden's dtype
  std::uint64_t logits_f32_bytes = 0;
  ChunkRule liger;  // zeros for an empty problem
  std::vector<ChunkCost> chunks;
  std::optional<StepMemory> step;  // with a model, in training
  Verdict verdict;
  std::vector<std::string> checklist;  // empty for inference
  std::vector<Offer> offers;           // of the checklist, and the command of each
  std::vector<std::string> commands;
  // The largest N for each of kPrintedMethods; empty where the device's memory is unknown.
  std::vector<std::int64_t> largest;

  const MethodReport& of(Method method) const {
    return report.methods[static_cast<std::size_t>(method) - 1];
  }
  AdviceRequest advice() const;
  // What the step takes with this method.
  std::uint64_t step_bytes(Method method, bool checkpointing) const;
};

// A text is answered in words of a text, options in options.
Spelling spelling_of(const PlanOptions& options);
// The command that was typed, with another request.
std::string plan_command(const PlanOptions& options, const Problem& problem,
                         const PlanRequest& request);

PlanAnswer answer_plan(const PlanOptions& options);

std::string plan_as_text(const PlanAnswer& answer);
std::string plan_as_json(const PlanAnswer& answer);

}  // namespace flce::cli
