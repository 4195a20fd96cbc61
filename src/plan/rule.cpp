// SPDX-License-Identifier: Apache-2.0
// The published chunk rule as numbers, and the largest number of tokens that fits. Both are
// questions to the planner; neither chooses anything.
#include <algorithm>

#include "core/check.hpp"
#include "core/int_math.hpp"
#include "core/ranges.hpp"
#include "flce/plan.hpp"

namespace flce {

// inc = ceil(V / H) is how many times larger the logits are than the hidden states; with 1 / inc of
// the tokens at a time the logits take about what the hidden states take: C * V = N * H.
ChunkRule liger_rule(std::int64_t tokens, std::int64_t hidden, std::int64_t vocab) {
  require(tokens >= 0 && hidden > 0 && vocab > 0,
          "the chunk rule needs tokens >= 0, hidden > 0 and vocab > 0; given {}, {}, {}", tokens,
          hidden, vocab);
  ChunkRule rule;
  rule.inc = ceil_div(vocab, hidden);
  const std::int64_t upper = std::max<std::int64_t>(tokens, 1);
  rule.chunk = std::min(next_pow2(ceil_div(tokens, rule.inc)), upper);
  rule.chunks = ceil_div(tokens, rule.chunk);
  if (tokens > 0) {
    rule.logits_over_hidden = static_cast<double>(rule.chunk) * static_cast<double>(vocab) /
                              (static_cast<double>(tokens) * static_cast<double>(hidden));
  }
  return rule;
}

namespace {

bool fits(Problem& problem, const DeviceCaps& caps, const PlanRequest& request,
          std::int64_t tokens) {
  problem.tokens = tokens;
  const Plan report = plan_report(problem, caps, request);
  return report.method != Method::kAuto;
}

}  // namespace

// peak_bytes grows with N for the best chunk of each N, so the fitting N form a range from 0.
std::int64_t largest_tokens(Problem problem, const DeviceCaps& caps, const PlanRequest& request) {
  require(caps.memory_bytes > 0, "how many tokens fit is unknown: device '{}' has no memory size",
          caps.name.data());
  // Tokens come in whole sequences where a sequence length is set.
  const std::int64_t unit = std::max<std::int64_t>(problem.options.sequence_length, 1);
  const std::uint64_t token_bytes =
      std::max<std::uint64_t>(bytes_of(problem.hidden, 1, size_of(problem.dtype)), 1);
  constexpr std::int64_t kMaxTokens = 1'000'000'000'000;
  const auto bound = static_cast<std::int64_t>(
      std::min<std::uint64_t>(caps.memory_bytes / token_bytes, kMaxTokens));
  std::int64_t low = 0;                  // in units; fits, or none does
  std::int64_t high = bound / unit + 1;  // does not fit: hidden alone exceeds the memory
  while (high - low > 1) {
    const std::int64_t middle = low + (high - low) / 2;
    (fits(problem, caps, request, middle * unit) ? low : high) = middle;
  }
  return low * unit;
}

}  // namespace flce
