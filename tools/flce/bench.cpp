// SPDX-License-Identifier: Apache-2.0
// `flce bench`: the methods side by side on one problem and device. Bytes predicted and measured,
// times of interleaved rounds beside what the device can do, errors against float64; as a table,
// CSV, JSON and SVG plots.
#include <fmt/core.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <functional>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "bench_csv.hpp"
#include "bench_cuda.hpp"
#include "bench_cuda_report.hpp"
#include "bench_input.hpp"
#include "bench_measure.hpp"
#include "bench_report.hpp"
#include "bench_svg.hpp"
#include "bench_variants.hpp"
#include "commands.hpp"
#include "common.hpp"
#include "io/atomic_file.hpp"
#include "run_shared.hpp"

namespace flce::cli {
namespace {

constexpr const char* kFooter =
    "Examples:\n"
    "  flce bench\n"
    "  flce bench --tokens 2048 --hidden 1024 --vocab 32000 --dtype bf16 --rounds 9\n"
    "  flce bench n4096_h256_v32000 f32 mean --chunks 1,2,4,8,16,32 --svg memory.svg\n"
    "  flce bench --tokens 2048 --methods fused --chunk-sizes 128,256,512 --svg-time time.svg\n"
    "  flce bench n1024_h512_v32000 f32 --methods naive,fused,naive-eager,chunked-eager --json\n"
    "  flce bench --device cuda --preset llama3-8b --tokens 16384 --dtype bf16 --csv h200.csv\n"
    "--chunks counts chunks, --chunk-sizes the token rows of one. naive-eager and chunked-eager "
    "are\n"
    "what common PyTorch code keeps and rounds; with options of the loss they are predicted only.\n"
    "forward is the loss alone; fused-liger is fused with the chunk of the published rule. On the\n"
    "CPU each method's resident set is measured in a process of its own. Times are of interleaved\n"
    "rounds after a warm-up, on random data. On a card the three bare products are timed in every\n"
    "round. Each round there has an order of its own (from --seed), and right before each\n"
    "measurement the card runs those products untimed (with --no-floor: the variant itself), so\n"
    "that it matters little what ran before. Memory is what was allocated there; --device auto\n"
    "takes a card where there is one.\n"
    "Exit code: 0 fine, 1 no method serves, 2 wrong usage or input.";

using Json = nlohmann::ordered_json;

// As a file name it means stdout.
constexpr const char* kStdout = "-";

struct BenchOptions {
  BenchProblem problem;
  std::vector<std::string> methods;
  std::vector<std::int64_t> chunks;       // numbers of chunks
  std::vector<std::int64_t> chunk_sizes;  // token rows
  std::int64_t rounds = 5;
  std::int64_t warmup = 1;
  DataSettings data;
  std::string data_kind = "random";
  bool no_rss = false;
  bool no_error = false;
  bool no_floor = false;
  std::optional<double> warm_seconds;
  std::optional<std::string> set;
  bool append = false;
  std::string csv;
  std::string json;
  std::string svg;
  std::string svg_time;
  DeviceChoice device;
};

std::vector<BenchMethod> methods_of(const BenchOptions& options, const PlanRequest& request) {
  std::vector<BenchMethod> methods;
  for (const std::string& name : options.methods) methods.push_back(bench_method_of(name));
  if (!methods.empty()) return methods;
  if (request.method != Method::kAuto) return {{request.method}};
  return {{Method::kNaive}, {Method::kChunked}, {Method::kFused}, {Method::kRecompute}};
}

// What a plot needs to show a curve: 1, 2, 4, ..., at most seven numbers of chunks.
std::vector<std::int64_t> chunk_sweep(std::int64_t tokens) {
  std::vector<std::int64_t> counts{1};
  while (counts.back() < 64 && tokens / (2 * counts.back()) >= 16) {
    counts.push_back(2 * counts.back());
  }
  return counts;
}

std::vector<std::int64_t> chunk_rows(const BenchOptions& options, const ProblemText& text) {
  const std::int64_t tokens = text.problem.tokens;
  if (!options.chunk_sizes.empty()) return options.chunk_sizes;
  const bool is_plotted = !options.svg.empty() || !options.svg_time.empty();
  std::vector<std::int64_t> counts = options.chunks;
  if (counts.empty() && is_plotted && text.request.chunk == 0) counts = chunk_sweep(tokens);
  std::vector<std::int64_t> rows;
  for (const std::int64_t count : counts) {
    rows.push_back(std::max<std::int64_t>(1, tokens / count + (tokens % count != 0 ? 1 : 0)));
  }
  return rows;
}

BenchSettings settings_of(const BenchOptions& options) {
  BenchSettings settings;
  settings.text = problem_text_of(options.problem);
  settings.methods = methods_of(options, settings.text.request);
  settings.chunks = chunk_rows(options, settings.text);
  settings.rounds = options.rounds;
  settings.warmup = options.warmup;
  settings.data = options.data;
  settings.data.kind = data_kind_of(options.data_kind);
  settings.caps = caps_of_choice(options.device);
  settings.model = model_of(options.problem);
  settings.warm_seconds = options.warm_seconds.value_or(settings.warm_seconds);
  settings.measure_rss = !options.no_rss;
  settings.measure_error = !options.no_error;
  settings.measure_floor = !options.no_floor;
  return settings;
}

bool is_cuda(const BenchSettings& settings) { return settings.caps.kind == DeviceKind::kCuda; }

std::string set_of(const BenchOptions& options) { return options.set.value_or("headline"); }

std::vector<Json> rows_of(const BenchOptions& options, const BenchResult& result,
                          const Machine& machine) {
  if (machine.card.empty()) return bench_rows(result, machine);
  return cuda_rows(result, machine, set_of(options));
}

// That nothing says twice which lines the table has, and nothing says it in vain.
void check_variants(const BenchOptions& options, const BenchSettings& settings) {
  const auto refuse = [](const std::string& text) {
    throw Error(ErrorCode::kInvalidArgument, text);
  };
  const PlanRequest& request = settings.text.request;
  if (!options.methods.empty() && request.method != Method::kAuto) {
    refuse(
        fmt::format("--methods and method={} of the problem text both name methods; leave out "
                    "one",
                    name_of(request.method)));
  }
  if (options.chunks.empty() && options.chunk_sizes.empty()) return;
  const std::string option = options.chunks.empty() ? "--chunk-sizes" : "--chunks";
  if (request.chunk > 0 || request.policy != ChunkPolicy::kMeasured) {
    refuse(option + " and chunk= or policy= of the problem text both choose chunks; leave out one");
  }
  if (std::none_of(settings.methods.begin(), settings.methods.end(), has_chunks)) {
    refuse(option + ": none of the methods takes a chunk; chunked, fused and recompute do");
  }
}

void check_device_options(const BenchOptions& options, const BenchSettings& settings) {
  if (is_cuda(settings)) return;
  const std::pair<bool, const char*> given[] = {
      {options.warm_seconds.has_value(), "--warm-seconds"},
      {options.no_floor, "--no-floor"},
      {options.set.has_value(), "--set"}};
  for (const auto& [is_given, name] : given) {
    if (!is_given) continue;
    throw Error(ErrorCode::kInvalidArgument,
                fmt::format("{} is for --device cuda, and this runs on the CPU; leave it out{}",
                            name, options.warm_seconds ? ", or give --warmup ROUNDS" : ""));
  }
}

void check_append(const BenchOptions& options, const BenchSettings& settings) {
  if (!options.append) return;
  if (options.csv.empty() || options.csv == kStdout) {
    throw Error(ErrorCode::kInvalidArgument, "--append needs a file to append to: --csv FILE");
  }
  BenchResult any;
  any.rows.emplace_back();
  Machine machine;
  if (is_cuda(settings)) machine.card = "any";
  csv_appended(options.csv, rows_of(options, any, machine));
}

std::vector<OutputFile> outputs_of(const BenchOptions& options) {
  return {{"--json", options.json},
          {"--csv", options.csv},
          {"--svg", options.svg},
          {"--svg-time", options.svg_time}};
}

bool is_stdout(const OutputFile& output) { return output.path == kStdout; }

// Before the work, not after it.
void check_outputs(const BenchOptions& options, const BenchSettings& settings) {
  const std::string& json = options.json;
  const bool looks_right = json.empty() || json == kStdout || json.find('.') != std::string::npos;
  if (!looks_right) {
    throw Error(
        ErrorCode::kInvalidArgument,
        fmt::format("--json {}: a file's name ends in .json; alone, --json prints to stdout "
                    "and stands last (or is written --json -)",
                    json));
  }
  std::vector<OutputFile> files = outputs_of(options);
  const auto printed = std::stable_partition(
      files.begin(), files.end(), [](const OutputFile& file) { return !is_stdout(file); });
  if (files.end() - printed > 1) {
    throw Error(ErrorCode::kInvalidArgument,
                fmt::format("{} and {} both want stdout; give one of them a file name",
                            printed[0].option, printed[1].option));
  }
  files.erase(printed, files.end());
  require_outputs(files);
  check_device_options(options, settings);
  check_append(options, settings);
}

void write_results(const BenchOptions& options, const BenchResult& result, const Machine& machine) {
  const std::vector<OutputFile> outputs = outputs_of(options);
  const bool is_quiet = std::any_of(outputs.begin(), outputs.end(), is_stdout);
  if (!is_quiet) {
    write_out(machine.card.empty() ? bench_table(result, machine) : cuda_table(result, machine));
  }
  const auto write = [&](const std::string& path, const auto& make_text) {
    if (path.empty()) return;
    if (path == kStdout) return write_out(make_text());
    io::write_text_atomic(path, make_text());
    if (!is_quiet) write_out(fmt::format("wrote {}\n", path));
  };
  const std::vector<Json> rows = rows_of(options, result, machine);
  write(options.csv,
        [&] { return options.append ? csv_appended(options.csv, rows) : csv_of(rows); });
  write(options.json, [&] { return Json(rows).dump(2) + "\n"; });
  write(options.svg, [&] { return memory_svg(result, machine); });
  write(options.svg_time, [&] { return time_svg(result, machine); });
}

int bench(const BenchOptions& options) {
  const BenchSettings settings = settings_of(options);
  check_variants(options, settings);
  check_outputs(options, settings);
  Progress progress("bench");
  const auto run = is_cuda(settings) ? run_cuda_bench : run_bench;
  const BenchResult result =
      run(settings, [&](std::int64_t done, std::int64_t all, const std::string& what) {
        progress.update(done + 1, all, what);
      });
  progress.clear();
  Machine machine = machine_facts(settings.caps);
  machine.card = result.card.name;
  write_results(options, result, machine);
  const bool serves = std::any_of(result.rows.begin(), result.rows.end(),
                                  [](const BenchRow& row) { return row.refused.empty(); });
  return serves ? 0 : 1;
}

void add_measure_options(CLI::App& command, BenchOptions& options) {
  command
      .add_option("--methods", options.methods,
                  "Such as naive,chunked,fused,recompute,forward,naive-eager,chunked-eager,"
                  "fused-liger")
      ->delimiter(',');
  CLI::Option* chunks =
      command.add_option("--chunks", options.chunks, "Numbers of chunks, such as 1,2,4,8")
          ->delimiter(',')
          ->transform(whole_number(1));
  command
      .add_option("--chunk-sizes", options.chunk_sizes, "Token rows of a chunk, such as 64,128,256")
      ->delimiter(',')
      ->transform(whole_number(1))
      ->excludes(chunks);
  command.add_option("--rounds", options.rounds, "Timed rounds; 0: memory and errors only")
      ->transform(whole_number(0, 100000))
      ->capture_default_str();
  command.add_option("--warmup", options.warmup, "Rounds before them")
      ->transform(whole_number(0, 100000))
      ->capture_default_str();
  command
      .add_option("--warm-seconds", options.warm_seconds,
                  "On a card: products before the rounds, for a cold one flatters (default: 3)")
      ->check(number_between(0.0, 600.0));
  command
      .add_option("--seed", options.data.seed,
                  "Seed of the random data and, on a card, of the order of the rounds")
      ->transform(seed_number())
      ->capture_default_str();
  command.add_option("--data", options.data_kind, fmt::format("One of {}", kDataKindNames))
      ->capture_default_str();
  command.add_flag("--no-rss", options.no_rss, "Do not measure the resident set");
  command.add_flag("--no-error", options.no_error, "Do not measure errors");
  command.add_flag("--no-floor", options.no_floor,
                   "Do not time the bare products, whose candidates take long to try for large N");
}

void add_output_options(CLI::App& command, BenchOptions& options) {
  command.add_option("--csv", options.csv, "Write a CSV file ('-': print it)")->type_name("FILE");
  command.add_flag("--append", options.append, "Keep the rows that the CSV file has");
  command.add_option("--set", options.set, "On a card: what the rows are for (default: headline)")
      ->check(CLI::IsMember({"headline", "sweep"}));
  command
      .add_option("--json", options.json, "Write a JSON file; without FILE, print a list of rows")
      ->expected(0, 1)
      ->default_str(kStdout)
      ->type_name("FILE");
  command.add_option("--svg", options.svg, "Plot the peak memory against the number of chunks")
      ->type_name("FILE");
  command.add_option("--svg-time", options.svg_time, "Plot the time against the size of a chunk")
      ->type_name("FILE");
}

}  // namespace

Command add_bench(CLI::App& app) {
  CLI::App* command = app.add_subcommand("bench", "Measure the methods side by side");
  const auto options = std::make_shared<BenchOptions>();
  add_bench_problem(*command, options->problem);
  add_measure_options(*command, *options);
  add_output_options(*command, *options);
  add_device_options(*command, options->device);
  command->footer(kFooter);
  return {command, [options] { return bench(*options); }};
}

}  // namespace flce::cli
