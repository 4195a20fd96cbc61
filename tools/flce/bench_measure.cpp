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
#include "run_outputs.hpp"
#include "run_step.hpp"
#include "verify_numbers.hpp"

namespace flce::cli {
namespace {

using Clock = std::chrono::steady_clock;

struct Variant {
  BenchRow row;
  Plan plan;
};

PlanRequest request_of(const BenchSettings& settings, Method method, std::int64_t chunk) {
  PlanRequest request = settings.text.request;
  request.method = method;
  request.chunk = chunk;
  return request;
}

MethodReport report_of(const Problem& problem, const DeviceCaps& caps, const PlanRequest& request) {
  return plan_report(problem, caps, request).methods[static_cast<std::size_t>(request.method) - 1];
}

// A method's line in the planner's report.
Variant plan_variant(const BenchSettings& settings, Method method, std::int64_t chunk) {
  const PlanRequest request = request_of(settings, method, chunk);
  const MethodReport report = report_of(settings.text.problem, settings.caps, request);
  Variant variant;
  BenchRow& row = variant.row;
  row.method = method;
  row.chunk = report.chunk;
  row.num_chunks = report.num_chunks;
  row.gemms = report.gemms;
  row.predicted_bytes = report.extra_bytes;
  row.predicted_peak_bytes = report.peak_bytes;
  row.refused = report.refusal.data();
  row.runnable = row.refused.empty() && !report.planned_only;
  if (row.runnable) variant.plan = plan(settings.text.problem, settings.caps, request);
  return variant;
}

// Chunks larger than N mean N: such a variant stands in the table once.
void add_variant(std::vector<Variant>& variants, Variant variant) {
  for (const Variant& other : variants) {
    if (other.row.method == variant.row.method && other.row.chunk == variant.row.chunk &&
        other.row.refused == variant.row.refused) {
      return;
    }
  }
  variants.push_back(std::move(variant));
}

std::vector<Variant> plan_variants(const BenchSettings& settings) {
  std::vector<Variant> variants;
  for (const Method method : settings.methods) {
    const bool whole = method == Method::kNaive || method == Method::kNaiveEager;
    if (whole || settings.chunks.empty()) {
      const std::int64_t chunk = whole ? 0 : settings.text.request.chunk;
      add_variant(variants, plan_variant(settings, method, chunk));
      continue;
    }
    for (const std::int64_t chunk : settings.chunks) {
      add_variant(variants, plan_variant(settings, method, chunk));
    }
  }
  return variants;
}

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
    return cli::execute(plan, data.inputs(), outputs.views(), workspace_.span(), saved_.span());
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
  row.peak_bytes = row.extra_bytes + static_cast<std::int64_t>(data.input_bytes());
  for (const io::TensorView& output : outputs.tensors()) {
    row.peak_bytes += static_cast<std::int64_t>(output.bytes.size());
  }
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
      advance(fmt::format("{} chunk {}", name_of(variant.row.method), variant.row.chunk));
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
  const PlanRequest request = request_of(settings, row.method, row.chunk);
  row.predicted_seconds = report_of(settings.text.problem, caps, request).seconds;
}

void measure_errors(const BenchSettings& settings, ProblemData& data, const OutputTensors& outputs,
                    SharedMemory& memory, std::vector<Variant>& variants, BenchResult& result,
                    const std::function<void(std::string)>& advance) {
  advance("the float64 reference");
  const ErrorProbe probe(settings.text.problem, data);
  result.sampled_tokens = probe.sampled_tokens();
  for (Variant& variant : variants) {
    if (!variant.row.runnable) continue;
    advance(fmt::format("errors of {}", name_of(variant.row.method)));
    if (result.sampled_tokens == 0) continue;
    load_starts(data, outputs);
    memory.execute(variant.plan, data, outputs);
    variant.row.errors = probe.errors_of(outputs.views());
  }
}

}  // namespace

double BenchRow::seconds_median() const {
  if (seconds.empty()) return -1.0;
  std::vector<double> sorted = seconds;
  std::sort(sorted.begin(), sorted.end());
  const std::size_t half = sorted.size() / 2;
  return sorted.size() % 2 == 1 ? sorted[half] : 0.5 * (sorted[half - 1] + sorted[half]);
}

double BenchRow::seconds_min() const {
  return seconds.empty() ? -1.0 : *std::min_element(seconds.begin(), seconds.end());
}

double BenchRow::seconds_max() const {
  return seconds.empty() ? -1.0 : *std::max_element(seconds.begin(), seconds.end());
}

double BenchRow::gflops(const Problem& problem) const {
  if (seconds.empty()) return -1.0;
  return 2e-9 * gemms * static_cast<double>(problem.tokens) * static_cast<double>(problem.hidden) *
         static_cast<double>(problem.vocab) / seconds_median();
}

double BenchResult::share_of_peak(const BenchRow& row) const {
  const double gflops = row.gflops(problem);
  return gflops < 0.0 || figures.matmul_flops <= 0.0 ? -1.0 : gflops * 1e9 / figures.matmul_flops;
}

double BenchResult::ratio_to_naive(const BenchRow& row) const {
  for (const BenchRow& other : rows) {
    if (other.method != Method::kNaive || other.seconds.empty() || row.seconds.empty()) continue;
    return row.seconds_median() / other.seconds_median();
  }
  return -1.0;
}

BenchResult run_bench(const BenchSettings& settings, const BenchProgress& on_progress) {
  std::vector<Variant> variants = plan_variants(settings);
  const std::int64_t runnable = std::count_if(variants.begin(), variants.end(),
                                              [](const Variant& v) { return v.row.runnable; });
  const std::int64_t passes = settings.warmup + settings.rounds + (settings.measure_rss ? 1 : 0) +
                              (settings.measure_error ? 1 : 0);
  const std::int64_t all = 2 + runnable * passes + (settings.measure_error ? 1 : 0);
  std::int64_t done = 0;
  const auto advance = [&](const std::string& what) { on_progress(done++, all, what); };
  BenchResult result{settings.text.problem, {}, {}, settings.rounds, 0};
  advance("random data");
  if (runnable > 0) {
    ProblemData data(settings.text.problem, settings.data);
    for (Variant& variant : variants) {
      if (!variant.row.runnable || !settings.measure_rss) continue;
      advance(fmt::format("memory of {}", name_of(variant.row.method)));
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
