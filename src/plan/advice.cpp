// SPDX-License-Identifier: Apache-2.0
// The verdict: does fusing pay. With a model's shape it is a share of the step's memory. Without
// one only what the head says is known, and three facts decide:
//   V/H < 8.5           a token's logits (4V bytes in f32) take less than what one layer of the
//                       trunk keeps of it (34H bytes, step_memory.cpp): no
//   share < 10 %        of head, its gradient, its AdamW states, hidden states and naive's extra;
//                       the rest of the model only makes the share smaller: no
//   share >= 25 %       yes, with the size of the step up to which it stays true; between: unknown
// Must not know how a method books its bytes.
#include "flce/advice.hpp"

#include <algorithm>

#include "core/check.hpp"
#include "core/int_math.hpp"
#include "core/text.hpp"
#include "plan/bytes.hpp"

namespace flce {
namespace {

constexpr double kPaysShare = 0.10;
constexpr double kClearShare = 0.25;
constexpr double kLayerBytesPerHidden = 34.0;
constexpr double kLogitBytes = 4.0;

const MethodReport& report_of(const Plan& plan, Method method) {
  return plan.methods[static_cast<std::size_t>(method) - 1];
}

// A method that cannot serve the problem has no bytes; one that only does not fit has.
bool has_bytes(const MethodReport& report) { return report.peak_bytes > 0; }

// The method that fusing would mean here: the chosen one, else the first that fits or serves.
const MethodReport* fused_report(const Plan& plan) {
  if (plan.method == Method::kFused || plan.method == Method::kRecompute) {
    return &report_of(plan, plan.method);
  }
  for (const Method method : {Method::kFused, Method::kRecompute}) {
    if (!report_of(plan, method).refused()) return &report_of(plan, method);
  }
  for (const Method method : {Method::kFused, Method::kRecompute}) {
    if (has_bytes(report_of(plan, method))) return &report_of(plan, method);
  }
  return nullptr;
}

std::string size(std::uint64_t bytes) { return format_bytes(bytes); }
std::string percent(double share) { return fmt::format("{:.1f}%", 100.0 * share); }

double share_of(std::uint64_t part, std::uint64_t whole) {
  return whole == 0 ? 0.0 : static_cast<double>(part) / static_cast<double>(whole);
}

std::string fused_words(const MethodReport& fused) {
  return fmt::format("{} (chunk {})", name_of(fused.method), fused.chunk);
}

// What of the memory does not fit, so that the user knows where to start.
std::string largest_part(const StepMemory& step, const AdviceRequest& request) {
  const MemoryTerm* largest = &step.weights;
  for (const MemoryTerm* term : {&step.gradients, &step.optimizer,
                                 request.checkpointing ? &step.checkpoints : &step.activations}) {
    if (term->bytes > largest->bytes) largest = term;
  }
  std::string text =
      fmt::format("the largest part is {} ({})", largest->name, size(largest->bytes));
  if (largest == &step.activations) {
    text += fmt::format("; activation checkpointing would leave {} of them",
                        size(saturating_add(step.checkpoints.bytes, step.recomputed_layer.bytes)));
  } else if (largest != &step.checkpoints) {
    text += "; more shards or a smaller optimizer state would help";
  }
  return text;
}

// The steps of one model with each way to compute the loss.
struct Steps {
  StepMemory memory;
  std::uint64_t naive = 0;
  std::uint64_t fused = 0;
  std::uint64_t eager = 0;
};

Steps steps_of(const Plan& plan, const AdviceRequest& request, const MethodReport& fused) {
  Steps steps;
  steps.memory = step_memory(*request.model, plan.problem, request.shards);
  const auto total = [&](Method method) {
    return steps.memory.total(report_of(plan, method).extra_bytes, request.checkpointing);
  };
  steps.naive = total(Method::kNaive);
  steps.fused = total(fused.method);
  steps.eager = total(Method::kNaiveEager);
  return steps;
}

// The share that is worth a change, or the only way to fit.
Pays pays_against(std::uint64_t other, std::uint64_t fused, double share, std::uint64_t memory) {
  const bool only_fused_fits = memory > 0 && other > memory && fused <= memory;
  return share >= kPaysShare || only_fused_fits ? Pays::kTrue : Pays::kFalse;
}

void judge_eager(const Plan& plan, const Steps& steps, Verdict& v) {
  v.eager_step_bytes = steps.eager;
  v.eager_saved_bytes = steps.eager - std::min(steps.eager, steps.fused);
  v.eager_saved_share = share_of(v.eager_saved_bytes, v.eager_step_bytes);
  v.eager_pays =
      pays_against(steps.eager, steps.fused, v.eager_saved_share, plan.caps.memory_bytes);
}

// Where naive says no, the eager code that most people run may still say yes; they should know.
std::string eager_words(const Plan& plan, const Verdict& v) {
  if (v.eager_saved_share < kPaysShare) return {};
  return fmt::format(
      " Eager PyTorch code, which holds {} of logits and their copies, takes {}: against that it "
      "would save {}.",
      size(report_of(plan, Method::kNaiveEager).extra_bytes), size(v.eager_step_bytes),
      percent(v.eager_saved_share));
}

// Whether the other way to keep activations would turn the answer.
std::string checkpointing_words(const Plan& plan, const AdviceRequest& request,
                                const MethodReport& fused, bool saves_enough) {
  AdviceRequest other = request;
  other.checkpointing = !request.checkpointing;
  const Steps steps = steps_of(plan, other, fused);
  const double share = share_of(steps.naive - std::min(steps.naive, steps.fused), steps.naive);
  if ((share >= kPaysShare) == saves_enough) return {};
  return fmt::format(" {} checkpointing it would be {} of {}.",
                     other.checkpointing ? "With" : "Without", percent(share), size(steps.naive));
}

Verdict judge_model(const Plan& plan, const AdviceRequest& request, const MethodReport& fused) {
  const Steps steps = steps_of(plan, request, fused);
  const std::uint64_t memory = plan.caps.memory_bytes;
  const bool naive_fits = memory == 0 || steps.naive <= memory;
  const bool fused_fits = memory == 0 || steps.fused <= memory;
  Verdict v;
  v.method = fused.method;
  v.step_bytes = steps.naive;
  v.saved_bytes = steps.naive - std::min(steps.naive, steps.fused);
  v.saved_share = share_of(v.saved_bytes, v.step_bytes);
  const bool saves_enough = v.saved_share >= kPaysShare;
  v.pays = pays_against(steps.naive, steps.fused, v.saved_share, memory);
  judge_eager(plan, steps, v);

  v.reason = fmt::format(
      "A step of {} with {} tokens {} activation checkpointing takes {} with naive and {} with {}: "
      "fusing saves {}, {} of it.",
      request.model->name, plan.problem.tokens, request.checkpointing ? "with" : "without",
      size(steps.naive), size(steps.fused), fused_words(fused), size(v.saved_bytes),
      percent(v.saved_share));
  if (memory == 0) {
    if (v.pays == Pays::kFalse) v.reason += " Below 10% that is not worth a change;";
    if (v.pays == Pays::kFalse) v.reason += ' ' + largest_part(steps.memory, request) + '.';
  } else if (!naive_fits && fused_fits) {
    v.reason += fmt::format(" Only the fused step fits into the {} of {}: the loss is the cause.",
                            size(memory), plan.caps.name.data());
  } else if (!fused_fits) {
    v.reason += fmt::format(" Neither fits into the {} of {}: the loss is not the {} cause, {}.",
                            size(memory), plan.caps.name.data(), saves_enough ? "only" : "main",
                            largest_part(steps.memory, request));
  } else {
    v.reason += fmt::format(" Both fit into the {} of {}{}", size(memory), plan.caps.name.data(),
                            saves_enough ? "; the saved memory is worth it." : " anyway.");
  }
  v.reason += checkpointing_words(plan, request, fused, saves_enough);
  if (v.pays == Pays::kFalse) v.reason += eager_words(plan, v);
  return v;
}

// Weight, gradient, AdamW moments and master copy of the head, and the hidden states both ways.
std::uint64_t head_bytes(const Problem& p) {
  const std::int64_t element = size_of(p.dtype);
  const std::int64_t states = element == 2 ? 12 : 2 * element;
  const std::int64_t per_weight = element + size_of(grad_weight_dtype_of(p)) + states;
  return saturating_add(bytes_of(p.vocab, p.hidden, per_weight),
                        bytes_of(p.tokens, p.hidden, 2 * element));
}

Verdict judge_head(const Plan& plan, const MethodReport& fused) {
  const Problem& p = plan.problem;
  const MethodReport& naive = report_of(plan, Method::kNaive);
  Verdict v;
  v.method = fused.method;
  v.saved_bytes = naive.extra_bytes - std::min(naive.extra_bytes, fused.extra_bytes);
  v.step_bytes = saturating_add(head_bytes(p), naive.extra_bytes);
  v.saved_share = share_of(v.saved_bytes, v.step_bytes);
  const double ratio =
      p.hidden > 0 ? static_cast<double>(p.vocab) / static_cast<double>(p.hidden) : 0.0;
  const bool few_logits = kLogitBytes * ratio < kLayerBytesPerHidden;
  const std::uint64_t memory = plan.caps.memory_bytes;
  const bool only_fused_fits = memory > 0 && naive.peak_bytes > memory && !fused.refused();

  v.reason = fmt::format(
      "The model is unknown, so this judges by the head alone: V/H is {:.1f}, {} tokens have {} of "
      "f32 logits beside {} of hidden states and weight. {} saves {}, {} of head, AdamW states, "
      "hidden states and logits.",
      ratio, p.tokens, size(bytes_of(p.tokens, p.vocab, 4)),
      size(saturating_add(bytes_of(p.tokens, p.hidden, size_of(p.dtype)),
                          bytes_of(p.vocab, p.hidden, size_of(p.dtype)))),
      fused_words(fused), size(v.saved_bytes), percent(v.saved_share));
  const auto break_even =
      static_cast<std::uint64_t>(static_cast<double>(v.saved_bytes) / kPaysShare);
  if (only_fused_fits) {
    v.pays = Pays::kTrue;
    v.reason += fmt::format(" naive alone needs {} and does not fit into the {} of {}; {} does.",
                            size(naive.peak_bytes), size(memory), plan.caps.name.data(),
                            name_of(fused.method));
  } else if (few_logits) {
    v.pays = Pays::kFalse;
    v.reason += " Below V/H = 8.5 a token's logits take less than what one layer keeps of it.";
  } else if (v.saved_share < kPaysShare) {
    v.pays = Pays::kFalse;
    v.reason += " The rest of the model only makes that share smaller.";
  } else {
    v.pays = v.saved_share >= kClearShare ? Pays::kTrue : Pays::kUnknown;
    v.reason += fmt::format(
        " That is at least 10% of the step as long as the whole step takes less than {}; a preset "
        "or a config.json gives the exact answer.",
        size(break_even));
  }
  return v;
}

Verdict judge_inference(const Plan& plan, const AdviceRequest& request) {
  const std::int64_t sequences = std::max<std::int64_t>(request.sequences, 1);
  Verdict v;
  v.pays = Pays::kFalse;
  v.reason = fmt::format(
      "Inference needs the logits of one token for each sequence: {} in f32 for {} sequence{}, and "
      "no gradient, so there is nothing to fuse. Scoring whole texts is another matter: a run "
      "without gradients keeps no logits.",
      size(bytes_of(sequences, plan.problem.vocab, 4)), sequences, sequences == 1 ? "" : "s");
  return v;
}

}  // namespace

const char* name_of(Pays pays) noexcept {
  constexpr const char* kNames[] = {"no", "yes", "unknown"};
  const auto i = static_cast<std::size_t>(pays);
  return i < 3 ? kNames[i] : "unknown";
}

Verdict judge(const Plan& plan, const AdviceRequest& request) {
  if (request.mode == Mode::kInfer) return judge_inference(plan, request);
  const MethodReport* fused = fused_report(plan);
  if (fused == nullptr || !has_bytes(report_of(plan, Method::kNaive))) {
    Verdict v;
    v.reason = fmt::format("Nothing to compare: fused: {}; recompute: {}; naive: {}.",
                           report_of(plan, Method::kFused).refusal.data(),
                           report_of(plan, Method::kRecompute).refusal.data(),
                           report_of(plan, Method::kNaive).refusal.data());
    return v;
  }
  return request.model != nullptr ? judge_model(plan, request, *fused) : judge_head(plan, *fused);
}

}  // namespace flce
