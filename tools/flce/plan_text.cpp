// SPDX-License-Identifier: Apache-2.0
// `flce plan` for people: tables, a verdict, a list of what to check.
#include <fmt/format.h>

#include <string>
#include <string_view>

#include "common.hpp"
#include "plan_answer.hpp"

namespace flce::cli {
namespace {

constexpr std::size_t kWidth = 100;

// Breaks at spaces; `first` starts the first line, `indent` spaces every other one.
std::string wrapped(std::string_view first, std::size_t indent, std::string_view text) {
  std::string result(first);
  std::size_t column = first.size();
  bool starts_line = true;
  while (!text.empty()) {
    const std::size_t end = std::min(text.find(' '), text.size());
    if (!starts_line && column + 1 + end > kWidth) {
      result += '\n';
      result.append(indent, ' ');
      column = indent;
    } else if (!starts_line) {
      result += ' ';
      ++column;
    }
    starts_line = false;
    result += text.substr(0, end);
    column += end;
    text.remove_prefix(std::min(end + 1, text.size()));
  }
  return result + '\n';
}

std::string size(std::uint64_t bytes) { return format_bytes(bytes); }

std::string header_text(const PlanAnswer& a) {
  const PlanQuestion& q = a.question;
  const Problem& p = q.problem;
  const double ratio =
      a.hidden_bytes > 0 ? static_cast<double>(a.logits_bytes) / static_cast<double>(a.hidden_bytes)
                         : 0.0;
  std::string text =
      fmt::format("{} tokens x {} hidden x {} vocab, {}, {}\n", format_count(p.tokens),
                  format_count(p.hidden), format_count(p.vocab), name_of(p.dtype),
                  q.advice.mode == Mode::kInfer ? "inference" : "training");
  if (q.model) {
    text += fmt::format("model    {}, {:.3f} billion parameters\n", q.model->name,
                        static_cast<double>(count_parameters(*q.model).parameters) / 1e9);
  }
  if (!q.model_note.empty()) text += fmt::format("model    {}\n", q.model_note);
  text += fmt::format("device   {} ({}{})", q.caps.name.data(), name_of(q.caps.kind),
                      q.at_hand ? "" : ", not at hand: planned only");
  if (q.caps.memory_bytes > 0) text += fmt::format(", {}", size(q.caps.memory_bytes));
  if (a.report.route != Route::kAuto) {
    text += fmt::format("\nroute    {}{}", name_of(a.report.route),
                        q.request.allow_tf32 ? ", products in tf32" : "");
    if (a.report.method != Method::kAuto && a.of(a.report.method).route_reason[0] != '\0') {
      text += fmt::format(" (hopper: {})", a.of(a.report.method).route_reason.data());
    }
    const std::string products = describe_products(a.report);
    if (!products.empty()) text += fmt::format("\nproducts {}", products);
  }
  if (q.request.budget_bytes > 0)
    text += fmt::format("\nbudget   {}", size(q.request.budget_bytes));
  text += fmt::format("\nhidden   {}\nweight   {}\nlogits   {} in {}, {} in f32; {:.1f} x hidden\n",
                      size(a.hidden_bytes), size(a.weight_bytes), size(a.logits_bytes),
                      name_of(p.dtype), size(a.logits_f32_bytes), ratio);
  return text;
}

bool knows_time(const PlanAnswer& a) {
  for (const Method method : kPrintedMethods) {
    if (a.of(method).seconds > 0.0) return true;
  }
  return false;
}

std::string methods_text(const PlanAnswer& a) {
  const bool timed = knows_time(a);
  Table table({"method", "chunk", "chunks", "GEMMs", "extra", "peak", timed ? "time" : ""});
  std::string refusals;
  for (const Method method : kPrintedMethods) {
    const MethodReport& r = a.of(method);
    const bool chosen = method == a.report.method;
    const std::string name = std::string(name_of(method)) + (chosen ? " *" : "");
    // The eager methods are a comparison; that they exceed a budget is no news.
    const bool is_eager = method == Method::kNaiveEager || method == Method::kChunkedEager;
    if (r.refused() && (!is_eager || a.question.request.method == method)) {
      refusals += wrapped(fmt::format("  {} refuses: ", name_of(method)), 4, r.refusal.data());
    }
    if (r.peak_bytes == 0) {
      table.add({name, "-", "-", std::to_string(r.gemms), "-", "-", ""});
      continue;
    }
    table.add({name, std::to_string(r.chunk), std::to_string(r.num_chunks), std::to_string(r.gemms),
               size(r.extra_bytes), size(r.peak_bytes), timed ? format_seconds(r.seconds) : ""});
  }
  std::string text = table.text() + refusals;
  if (a.report.method != Method::kAuto) text += "  * chosen\n";
  text += "  extra: beyond inputs and gradients; eager: what PyTorch code keeps, for comparison\n";
  if (timed) text += "  time: a roofline estimate\n";
  return text;
}

std::string chunks_text(const PlanAnswer& a) {
  if (a.chunks.empty()) return {};
  const bool timed = knows_time(a);
  std::string text = fmt::format(
      "Chunk of {}, and what others cost (published rule: inc {}, chunk {}, {} chunks)\n",
      name_of(a.report.method), a.liger.inc, a.liger.chunk, a.liger.chunks);
  Table table(
      {"  chunk", "chunks", "GEMM calls", "logits/hidden", "extra", timed ? "time" : "", ""});
  for (const ChunkCost& c : a.chunks) {
    std::string note = &c == &a.chunks.front() ? "chosen" : "";
    if (c.is_liger) note += note.empty() ? "policy=liger" : ", policy=liger";
    if (c.route != a.report.route) {
      note += fmt::format("{}route {}", note.empty() ? "" : ", ", name_of(c.route));
    }
    table.add({fmt::format("  {}", c.chunk), std::to_string(c.num_chunks),
               std::to_string(c.gemm_calls), fmt::format("{:.2f}", c.logits_over_hidden),
               size(c.extra_bytes), timed ? format_seconds(c.seconds) : "", note});
  }
  return text + table.text();
}

std::string step_text(const PlanAnswer& a) {
  if (!a.step) return {};
  const StepMemory& s = *a.step;
  std::string text = fmt::format("Memory of a step of {} (P = {})\n", a.question.model->name,
                                 count_parameters(*a.question.model).formula);
  for (const MemoryTerm* term : {&s.weights, &s.gradients, &s.optimizer, &s.hidden, &s.activations,
                                 &s.checkpoints, &s.recomputed_layer}) {
    text += fmt::format("  {:<17}{:>11}  {}\n", term->name, size(term->bytes), term->formula);
  }
  text +=
      "  activations are those without checkpointing; checkpoints and one recomputed layer\n"
      "  replace them with it\n";
  Table table({"  the whole step with", "loss", "no checkpointing", "checkpointing"});
  for (const Method method : kPrintedMethods) {
    const MethodReport& r = a.of(method);
    if (r.peak_bytes == 0) continue;
    table.add({fmt::format("  {}", name_of(method)), size(r.extra_bytes),
               size(a.step_bytes(method, false)), size(a.step_bytes(method, true))});
  }
  return text + table.text();
}

std::string largest_text(const PlanAnswer& a) {
  if (a.largest.empty()) return {};
  std::string text = fmt::format("Largest N whose loss step fits into {}{} (trunk not counted)\n",
                                 size(a.question.caps.memory_bytes),
                                 a.question.request.budget_bytes > 0 ? " and the budget" : "");
  for (std::size_t i = 0; i < a.largest.size(); ++i) {
    text +=
        fmt::format("  {:<14}{:>15}\n", name_of(kPrintedMethods[i]), format_count(a.largest[i]));
  }
  return text;
}

std::string verdict_text(const PlanAnswer& a) {
  const Pays pays = a.verdict.pays;
  const char* answer = pays == Pays::kTrue ? "Yes" : pays == Pays::kFalse ? "No" : "That depends";
  std::string text = wrapped(fmt::format("Does fusing pay? {}. ", answer), 2, a.verdict.reason);
  if (a.checklist.empty()) return text;
  text += "\nOn an out-of-memory error, check in this order:\n";
  for (std::size_t i = 0; i < a.checklist.size(); ++i) {
    text += wrapped(fmt::format("  {}. ", i + 1), 5, a.checklist[i]);
  }
  if (!a.commands.empty()) text += "\nWhat takes less, as commands:\n";
  for (const std::string& command : a.commands) text += fmt::format("  {}\n", command);
  return text;
}

}  // namespace

std::string plan_as_text(const PlanAnswer& a) {
  std::string text = header_text(a);
  for (const std::string& part :
       {methods_text(a), chunks_text(a), step_text(a), largest_text(a), verdict_text(a)}) {
    if (!part.empty()) text += '\n' + part;
  }
  return text;
}

}  // namespace flce::cli
