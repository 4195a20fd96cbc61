// SPDX-License-Identifier: Apache-2.0
// `flce plan`: how many bytes each method takes, whether fusing pays, and what to check on an
// out-of-memory error. Plans only: at most asks which cards there are, and allocates no tensor.
#include <fmt/format.h>

#include <algorithm>
#include <limits>
#include <memory>

#include "commands.hpp"
#include "common.hpp"
#include "plan_answer.hpp"

namespace flce::cli {
namespace {

constexpr const char* kFooter =
    R"(Examples:
  flce plan --tokens 16384 --hidden 4096 --vocab 128256 --dtype bf16
  flce plan --preset qwen3-8b --sequences 4 --sequence-length 4096 --budget 2GiB
  flce plan --config config.json --tokens 8192 --device-caps a100-80 --checkpointing
  flce plan --preset gemma2-2b --tokens 8192 --memory 24GiB --json
  flce plan --preset llama3-8b --tokens 16384 --device cuda:1
  flce plan "n8192_h4096_v128256 bf16 mean grad_weight=f32 method=fused budget=1GB"

extra is what a method holds beyond inputs and gradients; peak is all three. The eager methods are
what PyTorch code keeps, for comparison. --device auto plans for what 'flce run' would take: the
first CUDA card, where there is none the CPU; --device-caps plans for a card that need not be here.
Exit codes: 0 fine, 2 wrong usage or input, also a budget that is too small (the message names the
smallest one that works).)";

// What does not fit into 64 bits counts as the largest number there is.
std::uint64_t bytes(std::int64_t rows, std::int64_t cols, std::int64_t element) {
  std::uint64_t product = 0;
  const bool fits = !__builtin_mul_overflow(rows, cols, &product) &&
                    !__builtin_mul_overflow(product, element, &product);
  return fits ? product : std::numeric_limits<std::uint64_t>::max();
}

std::vector<std::int64_t> largest_of(const PlanQuestion& q) {
  std::vector<std::int64_t> largest;
  if (q.caps.memory_bytes == 0) return largest;
  for (const Method method : kPrintedMethods) {
    PlanRequest request = q.request;
    request.method = method;
    largest.push_back(largest_tokens(q.problem, q.caps, request));
  }
  return largest;
}

void add_problem_options(CLI::App& app, PlanOptions& o) {
  app.add_option("problem", o.text, "a problem text instead of the options below")
      ->type_name("TEXT");
  add_count_option(app, "--tokens", o.tokens, "tokens of a step on one device (N)")->type_name("N");
  add_count_option(app, "--sequences", o.sequences, "sequences of a step, with --sequence-length")
      ->type_name("B");
  add_count_option(app, "--sequence-length", o.sequence_length, "tokens of one sequence")
      ->type_name("L");
  add_count_option(app, "--hidden", o.hidden, "hidden size (H)")->type_name("H");
  add_count_option(app, "--vocab", o.vocab, "vocabulary (V)")->type_name("V");
  app.add_option("--dtype", o.dtype,
                 "f32, bf16, f16 or f64 of hidden and weight (default: the config's, else bf16)")
      ->type_name("DTYPE");
  app.add_option("--grad-weight", o.grad_weight, "f32: grad_weight goes into an f32 buffer")
      ->type_name("DTYPE");
  app.add_option("--preset", o.preset, "a known model: " + known_models())->type_name("MODEL");
  app.add_option("--config", o.config, "a Hugging Face config.json, or the folder that holds it")
      ->type_name("FILE");
  app.add_option("--mode", o.mode, "train or infer")
      ->check(CLI::IsMember({"train", "infer"}))
      ->type_name("MODE")
      ->capture_default_str();
  app.add_flag("--checkpointing", o.checkpointing, "layers' activations are recomputed");
  add_count_option(app, "--shards", o.shards,
                   "devices that share weights and optimizer (ZeRO-3, FSDP)")
      ->type_name("D");
}

void add_request_options(CLI::App& app, PlanOptions& o) {
  app.add_option("--method", o.method,
                 "auto, naive, chunked, fused, recompute, naive-eager or chunked-eager")
      ->type_name("METHOD");
  add_chunk_option(app, o.chunk);
  add_policy_option(app, o.chunk);
  add_bytes_option(app, "--budget", o.budget_bytes,
                   "most extra memory, such as 2GiB, 500MB or plain bytes");
  add_bytes_option(app, "--memory", o.memory_bytes,
                   "the device's memory, such as 80GiB (of a CUDA card unless --device cpu)");
  app.add_option("--device-caps", o.device_caps, "a card to plan for: " + known_caps())
      ->type_name("CARD");
  add_device_option(app, o.device);
  add_route_options(app, o.route);
  add_json_flag(app, o.json);
}

// Whether any figure of the report is a number of bytes and not "more than 64 bits can count".
bool has_figures(const Plan& report) {
  return std::any_of(report.methods.begin(), report.methods.end(), [](const MethodReport& line) {
    return line.peak_bytes > 0 && line.peak_bytes < std::numeric_limits<std::uint64_t>::max();
  });
}

int plan_action(const PlanOptions& options) {
  const PlanAnswer answer = answer_plan(options);
  const PlanQuestion& q = answer.question;
  // The report says what each method would take; why none is chosen is an error.
  const auto fail_if_none = [&] {
    if (answer.report.method == Method::kAuto) plan(q.problem, q.caps, q.request);
  };
  if (!has_figures(answer.report)) fail_if_none();
  write_out(options.json ? plan_as_json(answer) : plan_as_text(answer));
  fail_if_none();
  return 0;
}

}  // namespace

AdviceRequest PlanAnswer::advice() const {
  AdviceRequest request = question.advice;
  request.model = question.model ? &*question.model : nullptr;
  return request;
}

std::uint64_t PlanAnswer::step_bytes(Method method, bool checkpointing) const {
  return step->total(of(method).extra_bytes, checkpointing);
}

PlanAnswer answer_plan(const PlanOptions& options) {
  PlanAnswer a;
  a.question = plan_question(options);
  const PlanQuestion& q = a.question;
  const Problem& p = q.problem;
  a.report = plan_report(p, q.caps, q.request);
  a.hidden_bytes = bytes(p.tokens, p.hidden, size_of(p.dtype));
  a.weight_bytes = bytes(p.vocab, p.hidden, size_of(p.dtype));
  a.logits_bytes = bytes(p.tokens, p.vocab, size_of(p.dtype));
  a.logits_f32_bytes = bytes(p.tokens, p.vocab, 4);
  if (p.hidden > 0 && p.vocab > 0) a.liger = liger_rule(p.tokens, p.hidden, p.vocab);
  a.chunks = chunk_costs(a.report);
  a.verdict = judge(a.report, a.advice());
  if (q.advice.mode == Mode::kTrain) {
    if (q.model) a.step = step_memory(*q.model, p, q.advice.shards);
    // A device or problem that no method serves has no bytes to talk about.
    if (a.of(Method::kNaive).peak_bytes > 0) {
      a.checklist = oom_checklist(a.report, a.advice(), spelling_of(options));
      a.offers = oom_offers(a.report);
    }
    for (const Offer& offer : a.offers) {
      a.commands.push_back(plan_command(options, p, offer.request));
    }
  }
  a.largest = largest_of(q);
  return a;
}

Command add_plan(CLI::App& app) {
  CLI::App* command = app.add_subcommand(
      "plan",
      "bytes of each method, whether fusing pays, which chunk, what to check when memory "
      "runs out");
  const auto options = std::make_shared<PlanOptions>();
  command->footer(kFooter);
  add_problem_options(*command, *options);
  add_request_options(*command, *options);
  return {command, [options] { return plan_action(*options); }};
}

}  // namespace flce::cli
