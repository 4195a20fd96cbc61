// SPDX-License-Identifier: Apache-2.0
// `flce bench`: the methods side by side on one problem. Bytes predicted and measured, times of
// interleaved rounds, errors against float64; as a table, CSV, JSON and an SVG plot.
#include <fmt/core.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "bench_measure.hpp"
#include "bench_report.hpp"
#include "bench_svg.hpp"
#include "commands.hpp"
#include "common.hpp"
#include "io/atomic_file.hpp"
#include "run_shared.hpp"

namespace flce::cli {
namespace {

constexpr const char* kFooter =
    "Examples:\n"
    "  flce bench\n"
    "  flce bench n2048_h1024_v32000 bf16 mean --rounds 9\n"
    "  flce bench n4096_h256_v32000 f32 mean --chunks 64,128,256,512,1024 --svg memory.svg\n"
    "  flce bench n1024_h512_v128256 f32 mean --methods naive,fused,naive-eager --csv out.csv\n"
    "naive-eager and chunked-eager are what common PyTorch code keeps; they are predicted, not "
    "run.\n"
    "Each method's resident set is measured in a process of its own. Times are of interleaved\n"
    "rounds after a warm-up, on random data. Exit code: 0 fine, 2 wrong usage or input.";

struct BenchOptions {
  std::vector<std::string> words;
  std::vector<std::string> methods;
  std::vector<std::int64_t> chunks;
  std::int64_t rounds = 5;
  std::int64_t warmup = 1;
  DataSettings data;
  std::string data_kind = "random";
  bool no_rss = false;
  bool no_error = false;
  std::string csv;
  std::string json;
  std::string svg;
  DeviceChoice device;
};

std::vector<Method> methods_of(const BenchOptions& options, const PlanRequest& request) {
  std::vector<Method> methods;
  for (const std::string& name : options.methods) {
    const Method method = method_of(name);
    if (method == Method::kAuto) {
      throw Error(ErrorCode::kInvalidArgument,
                  "--methods auto: name the methods to compare, such as naive,fused");
    }
    methods.push_back(method);
  }
  if (!methods.empty()) return methods;
  if (request.method != Method::kAuto) return {request.method};
  return {Method::kNaive, Method::kChunked, Method::kFused, Method::kRecompute};
}

// What a plot needs to show a curve: N, N/2, ..., at most seven chunk sizes.
std::vector<std::int64_t> chunk_sweep(std::int64_t tokens) {
  std::vector<std::int64_t> chunks;
  for (std::int64_t parts = 1; parts <= 64 && (parts == 1 || tokens / parts >= 16); parts *= 2) {
    chunks.push_back(std::max<std::int64_t>(1, (tokens + parts - 1) / parts));
  }
  return chunks;
}

BenchSettings settings_of(const BenchOptions& options) {
  BenchSettings settings;
  settings.text = parse_problem(joined(options.words, " "));
  settings.methods = methods_of(options, settings.text.request);
  settings.chunks = options.chunks;
  if (settings.chunks.empty() && !options.svg.empty() && settings.text.request.chunk == 0) {
    settings.chunks = chunk_sweep(settings.text.problem.tokens);
  }
  settings.rounds = options.rounds;
  settings.warmup = options.warmup;
  settings.data = options.data;
  settings.data.kind = data_kind_of(options.data_kind);
  settings.caps = caps_of_choice(options.device);
  settings.measure_rss = !options.no_rss;
  settings.measure_error = !options.no_error;
  return settings;
}

int bench(const BenchOptions& options) {
  const BenchSettings settings = settings_of(options);
  require_writable("--csv", options.csv);
  require_writable("--json", options.json);
  require_writable("--svg", options.svg);
  Progress progress("bench");
  const BenchResult result =
      run_bench(settings, [&](std::int64_t done, std::int64_t all, const std::string& what) {
        progress.update(done + 1, all, what);
      });
  progress.clear();
  const Machine machine = machine_facts(settings.caps);
  write_out(bench_table(result, machine));
  const auto write = [](const std::string& path, const std::string& text) {
    if (path.empty()) return;
    io::write_text_atomic(path, text);
    write_out(fmt::format("wrote {}\n", path));
  };
  write(options.csv, bench_csv(result, machine));
  write(options.json, bench_json(result, machine).dump(2) + "\n");
  write(options.svg, bench_svg(result, machine));
  return 0;
}

}  // namespace

Command add_bench(CLI::App& app) {
  CLI::App* command = app.add_subcommand("bench", "Measure the methods side by side");
  const auto options = std::make_shared<BenchOptions>();
  options->words = {"n1024_h256_v32000", "f32", "mean"};
  command->add_option("problem", options->words, "A problem text")
      ->type_name("TEXT")
      ->capture_default_str();
  command->add_option("--methods", options->methods, "Such as naive,chunked,fused,recompute")
      ->delimiter(',');
  command->add_option("--chunks", options->chunks, "Token rows of a chunk, such as 64,128,256")
      ->delimiter(',')
      ->check(more_than_zero());
  command->add_option("--rounds", options->rounds, "Timed rounds")
      ->check(CLI::Range(1, 100000))
      ->capture_default_str();
  command->add_option("--warmup", options->warmup, "Rounds before them")
      ->check(CLI::Range(0, 100000))
      ->capture_default_str();
  command->add_option("--seed", options->data.seed, "Seed of the random data")
      ->capture_default_str();
  command->add_option("--data", options->data_kind, fmt::format("One of {}", kDataKindNames))
      ->capture_default_str();
  command->add_flag("--no-rss", options->no_rss, "Do not measure the resident set");
  command->add_flag("--no-error", options->no_error, "Do not measure errors");
  command->add_option("--csv", options->csv, "Write a CSV file")->type_name("FILE");
  command->add_option("--json", options->json, "Write a JSON file")->type_name("FILE");
  command->add_option("--svg", options->svg, "Plot the extra memory against the number of chunks")
      ->type_name("FILE");
  add_device_options(*command, options->device);
  command->footer(kFooter);
  return {command, [options] { return bench(*options); }};
}

}  // namespace flce::cli
