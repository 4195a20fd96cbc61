// SPDX-License-Identifier: Apache-2.0
#include "bench_measure.hpp"

#include <fmt/core.h>

#include <algorithm>
#include <chrono>
#include <cstring>
#include <functional>
#include <memory>
#include <utility>

#include "bench_memory.hpp"
#include "bench_variants.hpp"
#include "run_outputs.hpp"
#include "run_step.hpp"
#include "verify_numbers.hpp"

namespace flce::cli {
namespace {

using Clock = std::chrono::steady_clock;

// Gradients that are accumulated into begin with what the data says.
void load_starts(const ProblemData& data, const OutputTensors& outputs) {
  for (const char* name : {"grad_weight", "grad_bias"}) {
    const io::Tensor* start = data.find(std::string(name) + "_start");
    io::Tensor* output = outputs.find(name);
    if (start == nullptr || output == nullptr) continue;
    const io::TensorView view = start->view();
    std::memcpy(output->data(), view.bytes.data(), view.bytes.size());
  }
}

// The child allocates and runs nothing but this one variant; inputs are the parent's pages.
std::int64_t measure_rss(const Variant& variant, const ProblemData& data) {
  const nlohmann::json answer = run_in_child([&]() -> nlohmann::json {
    const OutputTensors outputs(variant.plan.problem);
    ResidentGrowth growth;
    growth.start();
    Step step(variant.plan);
    step.execute(data.inputs(), outputs.views());
    return growth.bytes();
  });
  return answer.get<std::int64_t>();
}

// Memory that all variants use in turn.
class SharedMemory {
 public:
  explicit SharedMemory(const std::vector<Variant>& variants)
      : workspace_(largest(variants, &Plan::workspace_bytes)),
        saved_(largest(variants, &Plan::saved_bytes)) {}

  RunReport execute(const Plan& plan, const ProblemData& data, const OutputTensors& outputs) {
    return cli::execute(plan, data.inputs(), wanted_of(plan.problem, outputs.views()),
                        workspace_.span(), saved_.span());
  }

 private:
  static std::uint64_t largest(const std::vector<Variant>& variants, std::uint64_t Plan::*field) {
    std::uint64_t bytes = 0;
    for (const Variant& variant : variants) {
      if (variant.row.runnable) bytes = std::max(bytes, variant.plan.*field);
    }
    return bytes;
  }

  Workspace workspace_;
  Workspace saved_;
};

double seconds_of(const std::function<void()>& work) {
  const Clock::time_point start = Clock::now();
  work();
  return std::chrono::duration<double>(Clock::now() - start).count();
}

void execute_variant(Variant& variant, const ProblemData& data, const OutputTensors& outputs,
                     SharedMemory& memory, bool is_timed) {
  load_starts(data, outputs);
  RunReport report;
  const double seconds = seconds_of([&] { report = memory.execute(variant.plan, data, outputs); });
  BenchRow& row = variant.row;
  row.extra_bytes =
      static_cast<std::int64_t>(report.workspace_high_water + report.saved_high_water);
  row.peak_bytes = row.extra_bytes + static_cast<std::int64_t>(data.input_bytes() +
                                                               output_bytes(variant.plan.problem));
  const Outputs& views = outputs.views();
  if (views.loss.size > 0) row.loss = load_number(views.loss.dtype, views.loss.data, 0);
  if (is_timed) row.seconds.push_back(seconds);
}

// One round after the other, all variants in each, so that a slow minute of the machine hits all.
// The yardstick is measured with every round, for the machine's clock changes, too.
void time_rounds(const BenchSettings& settings, const ProblemData& data,
                 const OutputTensors& outputs, SharedMemory& memory, std::vector<Variant>& variants,
                 CpuFigures& figures, const std::function<void(std::string)>& advance) {
  for (std::int64_t round = -settings.warmup; round < settings.rounds; ++round) {
    for (Variant& variant : variants) {
      if (!variant.row.runnable) continue;
      advance(fmt::format("{} chunk {}", variant.row.asked.name(), variant.row.chunk));
      execute_variant(variant, data, outputs, memory, round >= 0);
    }
    figures.matmul_flops =
        std::max(figures.matmul_flops,
                 measure_matmul_flops(settings.text.problem.dtype, settings.caps.num_threads));
  }
}

// The time that the plan expects of a machine with these figures.
void predict(const BenchSettings& settings, const CpuFigures& figures, BenchRow& row) {
  DeviceCaps caps = settings.caps;
  caps.matmul_flops = figures.matmul_flops;
  caps.bandwidth_bytes = figures.bandwidth_bytes;
  row.predicted_seconds = variant_report(settings, caps, row).seconds;
}

void measure_errors(const BenchSettings& settings, ProblemData& data, const OutputTensors& outputs,
                    SharedMemory& memory, std::vector<Variant>& variants, BenchResult& result,
                    const std::function<void(std::string)>& advance) {
  advance("the float64 reference");
  const ErrorProbe probe(settings.text.problem, data);
  result.sampled_tokens = probe.sampled_tokens();
  for (Variant& variant : variants) {
    if (!variant.row.runnable) continue;
    advance(fmt::format("errors of {}", variant.row.asked.name()));
    if (result.sampled_tokens == 0) continue;
    load_starts(data, outputs);
    memory.execute(variant.plan, data, outputs);
    variant.row.errors = probe.errors_of(wanted_of(variant.plan.problem, outputs.views()));
  }
}

}  // namespace

BenchResult run_bench(const BenchSettings& settings, const BenchProgress& on_progress) {
  std::vector<Variant> variants = plan_variants(settings);
  const std::int64_t runnable = std::count_if(variants.begin(), variants.end(),
                                              [](const Variant& v) { return v.row.runnable; });
  const std::int64_t passes = settings.warmup + settings.rounds + (settings.measure_rss ? 1 : 0) +
                              (settings.measure_error ? 1 : 0);
  const std::int64_t all = 2 + runnable * passes + (settings.measure_error ? 1 : 0);
  std::int64_t done = 0;
  const auto advance = [&](const std::string& what) { on_progress(done++, all, what); };
  BenchResult result;
  result.problem = settings.text.problem;
  result.rounds = settings.rounds;
  advance("random data");
  if (runnable > 0) {
    ProblemData data(settings.text.problem, settings.data);
    for (Variant& variant : variants) {
      if (!variant.row.runnable || !settings.measure_rss) continue;
      advance(fmt::format("memory of {}", variant.row.asked.name()));
      variant.row.rss_bytes = measure_rss(variant, data);
    }
    const OutputTensors outputs(settings.text.problem);
    SharedMemory memory(variants);
    advance("the processor's peak");
    result.figures = measure_cpu(settings.text.problem.dtype, settings.caps.num_threads);
    time_rounds(settings, data, outputs, memory, variants, result.figures, advance);
    if (settings.measure_error) {
      measure_errors(settings, data, outputs, memory, variants, result, advance);
    }
  }
  for (Variant& variant : variants) {
    if (variant.row.refused.empty()) predict(settings, result.figures, variant.row);
    result.rows.push_back(std::move(variant.row));
  }
  return result;
}

}  // namespace flce::cli
