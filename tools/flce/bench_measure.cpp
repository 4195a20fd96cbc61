// SPDX-License-Identifier: Apache-2.0
#include "bench_measure.hpp"

#include <fmt/core.h>

#include <algorithm>
#include <chrono>
#include <cstring>
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

bool is_eager(Method method) {
  return method == Method::kNaiveEager || method == Method::kChunkedEager;
}

// A method's line in the planner's report. Eager variants can be planned and not run.
Variant plan_variant(const BenchSettings& settings, Method method, std::int64_t chunk) {
  PlanRequest request = settings.text.request;
  request.method = method;
  request.chunk = chunk;
  Variant variant;
  const Plan report = plan_report(settings.text.problem, settings.caps, request);
  for (const MethodReport& seen : report.methods) {
    if (seen.method != method) continue;
    variant.row.method = method;
    variant.row.chunk = seen.chunk;
    variant.row.num_chunks = seen.num_chunks;
    variant.row.gemms = seen.gemms;
    variant.row.workspace_bytes = seen.workspace_bytes;
    variant.row.saved_bytes = seen.saved_bytes;
    variant.row.extra_bytes = seen.extra_bytes;
    variant.row.peak_bytes = seen.peak_bytes;
    variant.row.refused = seen.refusal.data();
  }
  variant.row.runnable = !is_eager(method) && variant.row.refused.empty();
  if (variant.row.runnable) variant.plan = plan(settings.text.problem, settings.caps, request);
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

// One round after the other, all variants in each, so that a slow minute of the machine hits all.
void time_rounds(const BenchSettings& settings, const ProblemData& data,
                 const OutputTensors& outputs, SharedMemory& memory, std::vector<Variant>& variants,
                 const std::function<void(std::string)>& advance) {
  for (std::int64_t round = -settings.warmup; round < settings.rounds; ++round) {
    for (Variant& variant : variants) {
      if (!variant.row.runnable) continue;
      advance(fmt::format("{} chunk {}", name_of(variant.row.method), variant.row.chunk));
      load_starts(data, outputs);
      const Clock::time_point start = Clock::now();
      const RunReport report = memory.execute(variant.plan, data, outputs);
      const double seconds = std::chrono::duration<double>(Clock::now() - start).count();
      variant.row.used_bytes = report.workspace_high_water + report.saved_high_water;
      variant.row.measured = true;
      const Outputs& views = outputs.views();
      if (views.loss.size > 0) {
        variant.row.loss = load_number(views.loss.dtype, views.loss.data, 0);
      }
      if (round >= 0) variant.row.seconds.push_back(seconds);
    }
  }
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
  const std::int64_t all = 1 + runnable * passes + (settings.measure_error ? 1 : 0);
  std::int64_t done = 0;
  const auto advance = [&](const std::string& what) { on_progress(done++, all, what); };
  BenchResult result{settings.text.problem, {}, settings.rounds, 0};
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
    time_rounds(settings, data, outputs, memory, variants, advance);
    if (settings.measure_error) {
      measure_errors(settings, data, outputs, memory, variants, result, advance);
    }
  }
  for (Variant& variant : variants) result.rows.push_back(std::move(variant.row));
  return result;
}

}  // namespace flce::cli
