// SPDX-License-Identifier: Apache-2.0
// What to check on an out-of-memory error, with the numbers of this problem; what would take less
// is offers.cpp's. Words only: every figure is the planner's.
#include <algorithm>

#include "backend/eager.hpp"
#include "core/dtypes.hpp"
#include "core/int_math.hpp"
#include "core/text.hpp"
#include "flce/advice.hpp"
#include "plan/bytes.hpp"

namespace flce {
namespace {

const MethodReport& report_of(const Plan& plan, Method method) {
  return plan.methods[static_cast<std::size_t>(method) - 1];
}

std::string size(std::uint64_t bytes) { return format_bytes(bytes); }

std::string time_text(double seconds) {
  return seconds < 1.0 ? fmt::format("{:.3g} ms", 1e3 * seconds) : fmt::format("{:.3g} s", seconds);
}

std::string against(double seconds, double other) {
  constexpr double kSame = 0.01;
  if (seconds <= 0.0 || other <= 0.0) return {};
  if (seconds < (1.0 + kSame) * other) return " (by the roofline in about the same time)";
  return fmt::format(" (by the roofline in {} instead of {})", time_text(seconds),
                     time_text(other));
}

std::string step_trace(const Plan& plan, const AdviceRequest& request) {
  const Problem& p = plan.problem;
  std::string text = fmt::format(
      "Does the trace end at the loss (lm_head, cross_entropy, log_softmax)? {} x {} logits are {} "
      "in {}",
      p.tokens, p.vocab, size(bytes_of(p.tokens, p.vocab, size_of(p.dtype))), name_of(p.dtype));
  if (p.dtype != Dtype::kF32) {
    text += fmt::format(" and {} in f32", size(bytes_of(p.tokens, p.vocab, 4)));
  }
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

// What eager code holds of a logit at once, as PyTorch names it.
std::string copies_of(const Problem& p) {
  const bool is_narrow = p.dtype != accumulation_dtype(p.dtype);
  if (!p.wants.any_gradient()) {
    return is_narrow ? "an f32 copy and the probabilities of the logits"
                     : "the logits and their probabilities";
  }
  return is_narrow ? "an f32 copy, the probabilities and the gradient of the logits"
                   : "the logits, their probabilities and their gradient";
}

std::string step_copies(const Plan& plan) {
  const Problem& p = plan.problem;
  const std::uint64_t eager = report_of(plan, Method::kNaiveEager).extra_bytes;
  const std::uint64_t naive = report_of(plan, Method::kNaive).extra_bytes;
  return fmt::format(
      "Are {} alive together? Eager code then holds {} bytes a logit, {} in all; naive, in place, "
      "holds {}{}.",
      copies_of(p), eager_logit(p).all_bytes, size(eager), size(naive),
      naive < eager ? "" : ", no less");
}

std::string step_plateau(const Plan& plan) {
  const Problem& p = plan.problem;
  const MethodReport& eager = report_of(plan, Method::kChunkedEager);
  if (!p.wants.any_gradient()) {
    return "Is the loss chunked, but its graph kept? No gradient is asked for, so none is needed: "
           "in PyTorch, torch.no_grad().";
  }
  return fmt::format(
      "Is the loss chunked, but its graph kept until the backward pass? Then the logits of every "
      "chunk stay, {} in {}, whatever the chunk: {} in all with a chunk of {}.",
      size(bytes_of(p.tokens, p.vocab, size_of(p.dtype))), name_of(p.dtype),
      size(eager.extra_bytes), eager.chunk);
}

// What the steps about this plan have in common.
struct AtHand {
  const Plan& plan;
  std::vector<Offer> offers;
  Spelling spelling;

  // "chunk=2048 takes 1.62 GB"
  std::string takes(const Offer& offer) const {
    return fmt::format("{} takes {}", spell_request(offer.request, spelling),
                       size(offer.extra_bytes));
  }
  std::string products(const Offer& offer) const {
    const std::string text = fmt::format("{} products", offer.gemm_calls);
    return plan.method == Method::kAuto ? text
                                        : fmt::format("{} instead of {}", text, gemm_calls(plan));
  }
};

// A refusal may begin with the method's name; a method that serves takes more than there is.
std::string why_not(const Plan& plan, Method method) {
  const MethodReport& report = report_of(plan, method);
  const std::string name = name_of(method);
  if (!report.refused()) return fmt::format("{} takes {}", name, size(report.extra_bytes));
  const std::string refusal = report.refusal.data();
  return refusal.starts_with(name) ? refusal : fmt::format("{} {}", name, refusal);
}

// Whoever plans with a fused method has done it, for what that is worth.
std::string step_fuse(const AtHand& at) {
  const Plan& plan = at.plan;
  for (const Offer& offer : at.offers) {
    if (offer.step != kFuseStep) continue;
    return fmt::format(
        "Fuse: {} beyond inputs and gradients{}, with a chunk of {}.", at.takes(offer),
        plan.method == Method::kAuto ? std::string()
                                     : fmt::format(" instead of {}", size(plan.extra_bytes)),
        offer.chunk);
  }
  if (plan.method == Method::kFused || plan.method == Method::kRecompute) {
    const std::uint64_t naive = report_of(plan, Method::kNaive).extra_bytes;
    const bool less = plan.extra_bytes < naive;
    const std::string difference =
        plan.extra_bytes == naive
            ? "as much as naive"
            : fmt::format("{} {} than naive",
                          size(less ? naive - plan.extra_bytes : plan.extra_bytes - naive),
                          less ? "less" : "more");
    return fmt::format(
        "Fuse: this plan does: {} (chunk {}) needs {} beyond inputs and gradients, {}.",
        name_of(plan.method), plan.chunk, size(plan.extra_bytes), difference);
  }
  if (plan.method == Method::kAuto) {
    return fmt::format("Fuse: not as asked. {}; {}.", why_not(plan, Method::kFused),
                       why_not(plan, Method::kRecompute));
  }
  return fmt::format(
      "Fuse: with the chunk that the planner prefers that saves nothing here; {} needs {} beyond "
      "inputs and gradients.",
      name_of(plan.method), size(plan.extra_bytes));
}

// Why no smaller chunk is offered: the one that takes least, and by which route.
std::string no_smaller_chunk(const Plan& plan) {
  std::vector<ChunkCost> costs = chunk_costs(plan);
  std::erase_if(costs, [&](const ChunkCost& cost) { return cost.chunk >= plan.chunk; });
  if (costs.empty()) return {};
  const ChunkCost& least = *std::min_element(
      costs.begin(), costs.end(),
      [](const ChunkCost& a, const ChunkCost& b) { return a.extra_bytes < b.extra_bytes; });
  const std::string route =
      least.route == plan.route ? std::string() : fmt::format(" by route {}", name_of(least.route));
  return fmt::format("no smaller chunk of the table saves, the one of {} tokens takes {}{}",
                     least.chunk, size(least.extra_bytes), route);
}

std::string words_of(const AtHand& at, const Offer& offer) {
  if (offer.request.method == Method::kAuto) {
    // Launches, which the roofline does not know, are most of its time.
    return fmt::format(
        "{} is the least that works, {} by {} with a chunk of {} and {}; a larger "
        "budget takes the largest chunk that fits",
        spell_request(offer.request, at.spelling), size(offer.extra_bytes), name_of(offer.method),
        offer.chunk, at.products(offer));
  }
  std::string text = at.takes(offer);
  if (at.plan.method != Method::kAuto) {
    text += fmt::format(" instead of {}", size(at.plan.extra_bytes));
  }
  if (offer.request.chunk == 0) text += fmt::format(" with a chunk of {}", offer.chunk);
  const std::string time =
      at.plan.method == Method::kAuto ? std::string() : against(offer.seconds, at.plan.seconds);
  return fmt::format("{}, {}{}", text, at.products(offer), time);
}

std::string step_budget(const AtHand& at) {
  std::string text;
  const auto add = [&](const std::string& part) {
    if (part.empty()) return;
    text += (text.empty() ? ": " : "; ") + part;
  };
  const auto is_smaller = [&](const Offer& offer) {
    return offer.request.chunk > 0 && offer.request.chunk < at.plan.chunk;
  };
  if (std::none_of(at.offers.begin(), at.offers.end(), is_smaller)) add(no_smaller_chunk(at.plan));
  for (const Offer& offer : at.offers) {
    if (offer.step == kBudgetStep) add(words_of(at, offer));
  }
  if (at.offers.empty()) {
    add(at.plan.method == Method::kAuto ? std::string("neither would help")
                                        : fmt::format("nothing takes less than the {} of this plan",
                                                      size(at.plan.extra_bytes)));
  }
  return "A smaller chunk or a budget" + text + '.';
}

// How much less the whole step takes than now.
std::string less_by(std::uint64_t now, std::uint64_t then) {
  return now > then ? fmt::format("{} less", size(now - then)) : "no less";
}

std::string step_rest(const Plan& plan, const AdviceRequest& request, Spelling spelling) {
  if (request.model == nullptr) {
    return "Only then a smaller batch, a shorter context, or a smaller model; a preset or a "
           "config.json says what each holds.";
  }
  const auto total = [&](const Plan& of, bool checkpointing) {
    return step_memory(*request.model, of.problem, request.shards)
        .total(of.extra_bytes, checkpointing);
  };
  Problem half = plan.problem;
  half.tokens /= 2;
  Plan half_plan = plan_report(half, plan.caps, plan.request);
  // Where nothing serves as asked, the step is compared without a loss.
  if (plan.method == Method::kAuto || half_plan.method == Method::kAuto) half_plan.extra_bytes = 0;
  const std::uint64_t now = total(plan, request.checkpointing);
  std::string text =
      fmt::format("Only then batch, context, model: of the step's {} half the tokens take {}",
                  size(now), less_by(now, total(half_plan, request.checkpointing)));
  const std::uint64_t kept = total(plan, true);
  if (!request.checkpointing && kept < now) {
    text +=
        fmt::format(", activation checkpointing{} takes {}",
                    spelling == Spelling::kOptions ? " (--checkpointing)" : "", less_by(now, kept));
  }
  const StepMemory step = step_memory(*request.model, plan.problem, request.shards);
  return text +
         fmt::format("; weights, gradients and optimizer take {}.",
                     size(saturating_add(saturating_add(step.weights.bytes, step.gradients.bytes),
                                         step.optimizer.bytes)));
}

}  // namespace

std::vector<std::string> oom_checklist(const Plan& plan, const AdviceRequest& request,
                                       Spelling spelling) {
  const AtHand at{plan, oom_offers(plan), spelling};
  return {step_trace(plan, request), step_copies(plan),
          step_plateau(plan),        step_fuse(at),
          step_budget(at),           step_rest(plan, request, spelling)};
}

}  // namespace flce
