// SPDX-License-Identifier: Apache-2.0
// What to check on an out-of-memory error, with the numbers of this problem; what a smaller chunk
// costs; the smallest budget. Asks the planner through the public interface and decides nothing.
#include <algorithm>

#include "core/int_math.hpp"
#include "core/ranges.hpp"
#include "core/text.hpp"
#include "flce/advice.hpp"
#include "plan/bytes.hpp"

namespace flce {
namespace {

const MethodReport& report_of(const Plan& plan, Method method) {
  return plan.methods[static_cast<std::size_t>(method) - 1];
}

std::string size(std::uint64_t bytes) { return format_bytes(bytes); }

std::string against(double seconds, double other) {
  constexpr double kSame = 0.01;
  if (seconds <= 0.0 || other <= 0.0) return {};
  if (seconds < (1.0 + kSame) * other) return " (in about the same time)";
  return fmt::format(" (in about {:.3g} ms instead of {:.3g})", 1e3 * seconds, 1e3 * other);
}

std::string step_trace(const Plan& plan, const AdviceRequest& request) {
  const Problem& p = plan.problem;
  std::string text = fmt::format(
      "Does the trace end at the loss (lm_head, cross_entropy, log_softmax)? {} x {} logits are {} "
      "in {} and {} in f32",
      p.tokens, p.vocab, size(bytes_of(p.tokens, p.vocab, size_of(p.dtype))), name_of(p.dtype),
      size(bytes_of(p.tokens, p.vocab, 4)));
  const std::uint64_t memory = plan.caps.memory_bytes;
  if (memory > 0 && request.model != nullptr) {
    const std::uint64_t rest =
        step_memory(*request.model, p, request.shards).without_loss(request.checkpointing);
    text += rest < memory ? fmt::format("; the rest of the step takes {} of {}, which leaves {}",
                                        size(rest), size(memory), size(memory - rest))
                          : fmt::format("; the rest of the step alone takes {} and there are {}",
                                        size(rest), size(memory));
  } else if (memory > 0) {
    text += fmt::format("; the device has {} in all: compare with what is free", size(memory));
  } else {
    text += "; compare with what is free";
  }
  return text + ". If it ends in a layer of the trunk, go to 6.";
}

std::string step_copies(const Plan& plan) {
  const Problem& p = plan.problem;
  const MethodReport& eager = report_of(plan, Method::kNaiveEager);
  const std::uint64_t logits = std::max<std::uint64_t>(bytes_of(p.tokens, p.vocab, 1), 1);
  return fmt::format(
      "Are an f32 copy, the probabilities and the gradient of the logits alive together? Eager "
      "code "
      "then holds {} bytes a logit, {}; naive, in place, holds {}.",
      eager.extra_bytes / logits, size(eager.extra_bytes),
      size(report_of(plan, Method::kNaive).extra_bytes));
}

std::string step_plateau(const Plan& plan) {
  const Problem& p = plan.problem;
  const MethodReport& eager = report_of(plan, Method::kChunkedEager);
  return fmt::format(
      "Is the loss chunked, but its graph kept until the backward pass? Then the logits of every "
      "chunk stay, {} in {}, whatever the chunk: {} in all with a chunk of {}.",
      size(bytes_of(p.tokens, p.vocab, size_of(p.dtype))), name_of(p.dtype),
      size(eager.extra_bytes), eager.chunk);
}

std::string step_fuse(const Plan& plan) {
  for (const Method method : {Method::kFused, Method::kRecompute}) {
    const MethodReport& fused = report_of(plan, method);
    if (fused.refused()) continue;
    const std::uint64_t naive = report_of(plan, Method::kNaive).extra_bytes;
    const bool less = fused.extra_bytes < naive;
    return fmt::format(
        "Fuse: {} (chunk {}) needs {} beyond inputs and gradients, {} {} than naive.",
        name_of(method), fused.chunk, size(fused.extra_bytes),
        size(less ? naive - fused.extra_bytes : fused.extra_bytes - naive), less ? "less" : "more");
  }
  return fmt::format("Fuse: not as asked. fused {}; recompute {}.",
                     report_of(plan, Method::kFused).refusal.data(),
                     report_of(plan, Method::kRecompute).refusal.data());
}

std::string step_budget(const Plan& plan) {
  std::string text = "A smaller chunk or a budget";
  const std::vector<ChunkCost> costs = chunk_costs(plan);
  if (costs.size() > 1) {
    const ChunkCost& small = costs[std::min<std::size_t>(2, costs.size() - 1)];
    text += fmt::format(": a chunk of {} takes {} instead of {}, with {} products instead of {}{}",
                        small.chunk, size(small.extra_bytes), size(costs[0].extra_bytes),
                        small.gemm_calls, costs[0].gemm_calls,
                        against(small.seconds, costs[0].seconds));
  }
  const SmallestBudget least = smallest_budget(plan.problem, plan.caps);
  if (least.method != Method::kAuto) {
    text +=
        fmt::format("; a budget takes the largest chunk that fits, down to {} bytes ({}) with {}",
                    least.bytes, size(least.bytes), name_of(least.method));
  }
  return text + '.';
}

std::string step_rest(const Plan& plan, const AdviceRequest& request) {
  if (request.model == nullptr) {
    return "Only then a smaller batch, a shorter context, or a smaller model; a preset or a "
           "config.json says what each holds.";
  }
  const StepMemory step = step_memory(*request.model, plan.problem, request.shards);
  const std::uint64_t kept =
      request.checkpointing ? step.checkpoints.bytes : step.activations.bytes;
  std::string text = fmt::format(
      "Only then batch, context, model: half the tokens free {} of activations", size(kept / 2));
  if (!request.checkpointing) {
    text += fmt::format(", activation checkpointing frees {}",
                        size(kept - std::min(kept, step.checkpoints.bytes)));
  }
  return text +
         fmt::format("; weights, gradients and optimizer take {}.",
                     size(saturating_add(saturating_add(step.weights.bytes, step.gradients.bytes),
                                         step.optimizer.bytes)));
}

bool is_cut(Method method) {
  return method == Method::kChunked || method == Method::kFused || method == Method::kRecompute;
}

ChunkCost cost_of(const Plan& plan) {
  const Problem& p = plan.problem;
  ChunkCost cost;
  cost.chunk = plan.chunk;
  cost.num_chunks = plan.num_chunks;
  cost.gemm_calls = gemm_calls(plan);
  cost.extra_bytes = plan.extra_bytes;
  cost.seconds = plan.seconds;
  if (p.tokens > 0 && p.hidden > 0) {
    cost.logits_over_hidden = static_cast<double>(plan.chunk) * static_cast<double>(p.vocab) /
                              (static_cast<double>(p.tokens) * static_cast<double>(p.hidden));
  }
  return cost;
}

}  // namespace

std::vector<std::string> oom_checklist(const Plan& plan, const AdviceRequest& request) {
  return {step_trace(plan, request), step_copies(plan), step_plateau(plan),
          step_fuse(plan),           step_budget(plan), step_rest(plan, request)};
}

std::int64_t gemm_calls(const Plan& plan) {
  if (plan.method == Method::kAuto) return 0;
  const std::int64_t gemms = plan.methods[static_cast<std::size_t>(plan.method) - 1].gemms;
  if (plan.method != Method::kRecompute) return gemms * plan.num_chunks;
  // Forward by token chunks; backward by token chunks within vocabulary slabs.
  const std::int64_t slabs = Pieces(plan.problem.vocab, plan.slab).count();
  return plan.num_chunks * (1 + (gemms - 1) * slabs);
}

std::vector<ChunkCost> chunk_costs(const Plan& plan) {
  std::vector<ChunkCost> costs;
  if (!is_cut(plan.method) || plan.problem.tokens <= 0) return costs;
  costs.push_back(cost_of(plan));
  const std::int64_t liger =
      plan.problem.vocab > 0
          ? liger_rule(plan.problem.tokens, plan.problem.hidden, plan.problem.vocab).chunk
          : 0;
  costs[0].is_liger = plan.chunk == liger;
  std::vector<std::int64_t> chunks;
  for (std::int64_t part = 2; part <= 16 && plan.chunk / part >= 1; part *= 2) {
    chunks.push_back(plan.chunk / part);
  }
  if (liger > 0 && liger != plan.chunk) chunks.push_back(liger);
  std::sort(chunks.begin(), chunks.end(), std::greater<>());
  chunks.erase(std::unique(chunks.begin(), chunks.end()), chunks.end());
  for (const std::int64_t chunk : chunks) {
    PlanRequest request = plan.request;
    request.method = plan.method;
    request.chunk = chunk;
    request.budget_bytes = 0;
    DeviceCaps caps = plan.caps;
    caps.memory_bytes = 0;
    const Plan other = plan_report(plan.problem, caps, request);
    if (other.method == Method::kAuto) continue;
    costs.push_back(cost_of(other));
    costs.back().is_liger = chunk == liger;
  }
  return costs;
}

SmallestBudget smallest_budget(const Problem& problem, const DeviceCaps& caps) {
  // One byte is less than any method needs, so each reports the least that it works with.
  DeviceCaps unlimited = caps;
  unlimited.memory_bytes = 0;
  PlanRequest request;
  request.budget_bytes = 1;
  const Plan report = plan_report(problem, unlimited, request);
  SmallestBudget least;
  for (const Method method :
       {Method::kFused, Method::kRecompute, Method::kChunked, Method::kNaive}) {
    const MethodReport& r = report_of(report, method);
    if (r.peak_bytes == 0) continue;
    if (least.method != Method::kAuto && r.extra_bytes >= least.bytes) continue;
    least = {r.extra_bytes, method, r.chunk};
  }
  return least;
}

}  // namespace flce
