// SPDX-License-Identifier: Apache-2.0
// `flce verify`: every method that serves a problem against the double-precision oracle, on random
// data. One line for each method; exit 1 when a result is off or when no method serves.
#include <fmt/core.h>

#include <CLI/CLI.hpp>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <functional>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <utility>
#include <vector>

#include "commands.hpp"
#include "common.hpp"
#include "run_outputs.hpp"
#include "run_shared.hpp"
#include "run_step.hpp"
#include "verify_compare.hpp"
#include "verify_data.hpp"

namespace flce::cli {
namespace {

using Json = nlohmann::ordered_json;

// The oracle takes about ten nanoseconds for each (token, class, hidden) triple, and five doubles
// for each logit.
constexpr std::int64_t kMaxTriples = 20'000'000'000;
constexpr std::int64_t kMaxLogits = 100'000'000;

constexpr const char* kFooter =
    "Examples:\n"
    "  flce verify \"n37_h65_v129 bf16 mean label_smoothing=0.1 softcap=30 method=fused\"\n"
    "  flce verify n64_h32_v1000 f32 none bias grad_bias upstream=per_token lse entropy topk=5\n"
    "  flce verify problems.txt --data confident     # a problem a line, # begins a comment\n"
    "  flce verify n37_h64_v129 f32 tf32 method=fused --device cuda\n"
    "--device auto takes the first CUDA card, where there is none the CPU. On a card the words\n"
    "route=portable|hopper and tf32 of a problem text say how it computes.\n"
    "Exit code: 0 all within the limits, 1 a miss (or no method serves), 2 wrong usage.";

struct VerifyOptions {
  std::vector<std::string> words;
  DeviceChoice device;
  DataSettings data{.ignored_share = 0.1, .poison_ignored = true};
  std::string data_kind = "random";
  double limit_scale = 1.0;
  bool json = false;
};

struct MethodResult {
  Method method = Method::kAuto;
  std::int64_t chunk = 0;
  std::string refused;
  std::vector<Check> checks;
  bool exact_memory = true;  // used bytes equal the plan's

  bool passes(double scale) const {
    bool all = exact_memory;
    for (const Check& check : checks) {
      all &= check.error <= check.limit * scale;
    }
    return all;
  }
};

struct ProblemResult {
  std::string text;
  std::vector<MethodResult> methods;
};

[[noreturn]] void refuse(const std::string& text) {
  throw Error(ErrorCode::kInvalidArgument, text);
}

// A problem text, and where it stands: "problems.txt, line 3: "; empty for the command line.
struct ProblemLine {
  std::string place;
  std::string text;
};

// One argument that names a file: its lines. Otherwise all arguments are the words of one problem.
std::vector<ProblemLine> problem_lines(const std::vector<std::string>& words) {
  std::error_code error;
  if (words.size() > 1 || !std::filesystem::exists(words.front(), error)) {
    return {{"", joined(words, " ")}};
  }
  const std::string& path = words.front();
  if (std::filesystem::is_directory(path, error)) {
    refuse(fmt::format("{}: is a folder, not a file of problem texts", path));
  }
  std::ifstream file(path);
  if (!file) refuse(fmt::format("{}: cannot read: {}", path, std::strerror(errno)));
  std::vector<ProblemLine> lines;
  std::int64_t number = 0;
  for (std::string line; std::getline(file, line);) {
    ++number;
    if (line.find('\0') != std::string::npos) {
      refuse(fmt::format("{}: holds binary data, not problem texts", path));
    }
    line = line.substr(0, line.find('#'));
    if (line.find_first_not_of(" \t\r") == std::string::npos) continue;
    lines.push_back({fmt::format("{}, line {}: ", path, number), line});
  }
  if (lines.empty()) refuse(fmt::format("{}: holds no problem text", path));
  return lines;
}

void require_affordable(const Problem& p) {
  const double triples =
      static_cast<double>(p.tokens) * static_cast<double>(p.hidden) * static_cast<double>(p.vocab);
  const double logits = static_cast<double>(p.tokens) * static_cast<double>(p.vocab);
  if (triples <= kMaxTriples && logits <= kMaxLogits) return;
  refuse(
      fmt::format("'{}' is too large for the oracle: {:.3g} logits and {:.3g} products of at "
                  "most {:.0e} and {:.0e}; flce bench measures errors on sampled tokens",
                  format_problem(p), logits, triples, static_cast<double>(kMaxLogits),
                  static_cast<double>(kMaxTriples)));
}

// What is wrong with a text, before the first problem is run. Throws Error with the place in front.
void check_line(const ProblemLine& line, const DeviceCaps& caps) {
  try {
    const ProblemText text = parse_problem(line.text);
    const Options& options = text.problem.options;
    if (options.has_normalizer && options.normalizer == 0.0) {
      refuse(
          "'normalizer=0' divides by zero: there is no finite result to compare; give a positive "
          "normalizer");
    }
    plan_report(text.problem, caps, text.request);
    require_affordable(text.problem);
  } catch (const Error& error) {
    throw Error(error.code(), line.place + error.what());
  }
}

MethodResult verify_method(const ProblemText& text, Method method, const DeviceCaps& caps,
                           const ProblemData& data, const Truth& truth) {
  MethodResult result;
  result.method = method;
  PlanRequest request = text.request;
  request.method = method;
  for (const MethodReport& report : plan_report(text.problem, caps, request).methods) {
    if (report.method == method) result.refused = report.refusal.data();
  }
  if (!result.refused.empty()) return result;
  const Plan plan = flce::plan(text.problem, caps, request);
  result.chunk = plan.chunk;
  Step step(plan);
  // What the library does not write must not matter: 0xFF bytes are NaN in every float type.
  step.fill(std::byte{0xFF});
  OutputTensors outputs(text.problem);
  for (const char* name : {"grad_weight", "grad_bias"}) {
    const io::Tensor* start = data.find(std::string(name) + "_start");
    if (start == nullptr) continue;
    const io::TensorView view = start->view();
    std::memcpy(outputs.find(name)->data(), view.bytes.data(), view.bytes.size());
  }
  step.execute(data.inputs(), outputs.views());
  result.checks = truth.compare(outputs);
  result.exact_memory = step.used_bytes() <= plan.extra_bytes;
  return result;
}

ProblemResult verify_problem(const ProblemLine& line, const VerifyOptions& options,
                             const DeviceCaps& caps) {
  const ProblemText text = parse_problem(line.text);
  const ProblemData data(text.problem, options.data);
  const Truth truth(text.problem, data);
  ProblemResult result{format_problem(text.problem, text.request), {}};
  std::vector<Method> methods{text.request.method};
  if (text.request.method == Method::kAuto) {
    methods = {Method::kNaive, Method::kChunked, Method::kFused, Method::kRecompute};
  }
  for (const Method method : methods) {
    result.methods.push_back(verify_method(text, method, caps, data, truth));
  }
  return result;
}

std::string text_of(const ProblemResult& result, double scale) {
  std::string text = result.text + "\n";
  for (const MethodResult& method : result.methods) {
    if (!method.refused.empty()) {
      text += fmt::format("  {:<10} refused: {}\n", name_of(method.method), method.refused);
      continue;
    }
    text += fmt::format("  {:<10} chunk {:<6} {}", name_of(method.method), method.chunk,
                        method.passes(scale) ? "PASS" : "MISS");
    for (const Check& check : method.checks) {
      const bool bad = !(check.error <= check.limit * scale);
      text += fmt::format("  {} {:.1e} {} {:.1e}", check.name, check.error,
                          bad ? ">" : "<=", check.limit * scale);
    }
    text += method.exact_memory ? "\n" : "  used more memory than the plan booked\n";
  }
  return text;
}

Json json_of(const ProblemResult& result, double scale) {
  Json methods = Json::array();
  for (const MethodResult& method : result.methods) {
    Json entry{{"method", name_of(method.method)}};
    entry["refused"] = method.refused.empty() ? Json() : Json(method.refused);
    if (method.refused.empty()) {
      entry["chunk"] = method.chunk;
      entry["pass"] = method.passes(scale);
      entry["checks"] = Json::object();
      for (const Check& check : method.checks) {
        entry["checks"][check.name] = {{"error", check.error}, {"limit", check.limit * scale}};
      }
    }
    methods.push_back(std::move(entry));
  }
  return {{"problem", result.text}, {"methods", std::move(methods)}};
}

struct Tally {
  std::int64_t runs = 0;
  std::int64_t missed = 0;
  std::int64_t unserved = 0;  // problems that no method serves

  void count(const ProblemResult& result, double scale) {
    std::int64_t served = 0;
    for (const MethodResult& method : result.methods) {
      if (!method.refused.empty()) continue;
      ++served;
      if (!method.passes(scale)) ++missed;
    }
    runs += served;
    if (served == 0) ++unserved;
  }
  bool good() const { return missed == 0 && unserved == 0; }
};

int verify(VerifyOptions options) {
  options.data.kind = data_kind_of(options.data_kind);
  const DeviceCaps caps = caps_of_choice(options.device);
  const std::vector<ProblemLine> lines = problem_lines(options.words);
  for (const ProblemLine& line : lines) check_line(line, caps);
  const auto count = static_cast<std::int64_t>(lines.size());
  Progress progress("verify");
  Json document = Json::array();
  Tally tally;
  for (std::int64_t i = 0; i < count; ++i) {
    progress.update(i + 1, count, lines[i].text);
    const ProblemResult result = verify_problem(lines[i], options, caps);
    tally.count(result, options.limit_scale);
    progress.clear();
    if (options.json) {
      document.push_back(json_of(result, options.limit_scale));
    } else {
      write_out(text_of(result, options.limit_scale));
    }
  }
  if (options.json) {
    write_out(Json{{"pass", tally.good()}, {"problems", document}}.dump(2) + "\n");
  } else {
    const std::string unserved =
        tally.unserved > 0 ? fmt::format(", served by no method {}", tally.unserved) : "";
    write_out(fmt::format("{}: problems {}, runs {}, missed {}{}\n", tally.good() ? "PASS" : "MISS",
                          count, tally.runs, tally.missed, unserved));
  }
  return tally.good() ? 0 : 1;
}

}  // namespace

Command add_verify(CLI::App& app) {
  CLI::App* command =
      app.add_subcommand("verify", "Check every method against the double-precision oracle");
  const auto options = std::make_shared<VerifyOptions>();
  command->add_option("problem", options->words, "A problem text, or a file with one on each line")
      ->required()
      ->type_name("TEXT|FILE");
  command->add_option("--seed", options->data.seed, "Seed of the random data")
      ->transform(seed_number())
      ->capture_default_str();
  command->add_option("--data", options->data_kind, fmt::format("One of {}", kDataKindNames))
      ->capture_default_str();
  command
      ->add_option("--ignored", options->data.ignored_share,
                   "Share of ignored targets; their hidden rows hold NaN")
      ->capture_default_str()
      ->check(number_between(0.0, 1.0));
  command
      ->add_option("--limit-scale", options->limit_scale,
                   "Multiplies every limit; 0 lets only exact results pass")
      ->capture_default_str()
      ->check(zero_or_more());
  add_json_flag(*command, options->json);
  add_device_options(*command, options->device);
  command->footer(kFooter);
  return {command, [options] { return verify(*options); }};
}

}  // namespace flce::cli
