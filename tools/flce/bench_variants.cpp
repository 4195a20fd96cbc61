// SPDX-License-Identifier: Apache-2.0
#include "bench_variants.hpp"

#include <utility>

#include "common.hpp"

namespace flce::cli {
namespace {

// Without gradients there is none to accumulate into.
Problem problem_of_method(const BenchSettings& settings, const BenchMethod& method) {
  Problem problem = settings.text.problem;
  if (!method.is_forward) return problem;
  Wants& wants = problem.wants;
  wants.grad_hidden = wants.grad_weight = wants.grad_bias = false;
  problem.accumulate_grad_weight = problem.accumulate_grad_bias = false;
  return problem;
}

PlanRequest request_of(const BenchSettings& settings, const BenchMethod& method,
                       std::int64_t chunk) {
  PlanRequest request = settings.text.request;
  request.method = method.method;
  request.chunk = method.is_liger ? 0 : chunk;
  if (method.is_liger) request.policy = ChunkPolicy::kLiger;
  return request;
}

// `report` was made for `request`.
const MethodReport& line_of(const Plan& report, const PlanRequest& request) {
  // Where nothing serves, the first method's line says why.
  const Method method = request.method != Method::kAuto  ? request.method
                        : report.method != Method::kAuto ? report.method
                                                         : Method::kNaive;
  return report.methods[static_cast<std::size_t>(method) - 1];
}

Variant plan_variant(const BenchSettings& settings, const BenchMethod& method, std::int64_t chunk) {
  const Problem problem = problem_of_method(settings, method);
  const PlanRequest request = request_of(settings, method, chunk);
  const Plan whole = plan_report(problem, settings.caps, request);
  const MethodReport& report = line_of(whole, request);
  Variant variant;
  BenchRow& row = variant.row;
  row.asked = method;
  row.method = report.method;
  row.chunk = report.chunk;
  row.num_chunks = report.num_chunks;
  row.gemms = report.gemms;
  row.predicted_bytes = report.extra_bytes;
  row.predicted_peak_bytes = report.peak_bytes;
  row.predicted_seconds = report.seconds;
  row.refused = report.refusal.data();
  row.runnable = row.refused.empty() && !report.planned_only;
  if (row.runnable) variant.plan = plan(problem, settings.caps, request);
  row.route = whole.route;
  return variant;
}

// Chunks larger than N mean N: such a variant stands in the table once.
void add_variant(std::vector<Variant>& variants, Variant variant) {
  for (const Variant& other : variants) {
    if (other.row.asked == variant.row.asked && other.row.chunk == variant.row.chunk &&
        other.row.refused == variant.row.refused) {
      return;
    }
  }
  variants.push_back(std::move(variant));
}

}  // namespace

bool has_chunks(const BenchMethod& method) {
  return flce::has_chunks(method.method) && !method.is_forward && !method.is_liger;
}

std::vector<Variant> plan_variants(const BenchSettings& settings) {
  std::vector<Variant> variants;
  for (const BenchMethod& method : settings.methods) {
    if (!has_chunks(method) || settings.chunks.empty()) {
      const std::int64_t chunk = has_chunks(method) ? settings.text.request.chunk : 0;
      add_variant(variants, plan_variant(settings, method, chunk));
      continue;
    }
    for (const std::int64_t chunk : settings.chunks) {
      add_variant(variants, plan_variant(settings, method, chunk));
    }
  }
  return variants;
}

MethodReport variant_report(const BenchSettings& settings, const DeviceCaps& caps,
                            const BenchRow& row) {
  const PlanRequest request = request_of(settings, row.asked, row.chunk);
  return line_of(plan_report(problem_of_method(settings, row.asked), caps, request), request);
}

}  // namespace flce::cli
