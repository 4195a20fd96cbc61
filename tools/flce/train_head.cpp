// SPDX-License-Identifier: Apache-2.0
#include "train_head.hpp"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <nlohmann/json.hpp>

#include "common.hpp"
#include "run_outputs.hpp"
#include "run_step.hpp"
#include "step_memory.hpp"
#include "verify_data.hpp"
#include "verify_numbers.hpp"

namespace flce::cli {
namespace {

using Json = nlohmann::json;

// Memory of this method alone, and the time of one step: on the CPU of its first, fresh pages
// included; on a card of its second, as the first one loads code.
Json measure(const Plan& plan, const ProblemData& data) {
  const OutputTensors outputs(plan.problem);
  const MemoryGrowth growth(plan.caps.kind);
  const auto start = std::chrono::steady_clock::now();
  Step step(plan);
  step.execute(data.inputs(), outputs.views());
  double seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  if (plan.caps.kind == DeviceKind::kCuda) {
    step.execute(data.inputs(), outputs.views());
    seconds = step.seconds();
  }
  const VectorView& loss = outputs.views().loss;
  return {{"used", step.used_bytes()},
          {"growth", growth.bytes()},
          {"seconds", seconds},
          {"loss", load_number(loss.dtype, loss.data, 0)}};
}

}  // namespace

std::vector<HeadStep> run_head_steps(const Problem& problem, const DeviceCaps& caps,
                                     const std::vector<PlanRequest>& requests) {
  Progress progress("step of a large head");
  const auto count = static_cast<std::int64_t>(requests.size());
  progress.update(0, count, "random data");
  const ProblemData data(problem, {});
  std::vector<HeadStep> steps;
  for (const PlanRequest& request : requests) {
    progress.update(static_cast<std::int64_t>(steps.size()), count, name_of(request.method));
    HeadStep step;
    step.method = request.method;
    try {
      const Plan plan = flce::plan(problem, caps, request);
      step.chunk = plan.chunk;
      step.extra_bytes = plan.extra_bytes;
      const Json seen = run_measured(caps.kind, [&] { return measure(plan, data); });
      step.used_bytes = seen["used"].get<std::uint64_t>();
      step.growth_bytes = seen["growth"].get<std::uint64_t>();
      step.seconds = seen["seconds"].get<double>();
      step.loss = seen["loss"].get<double>();
    } catch (const Error& error) {
      step.failure = error.what();
    }
    steps.push_back(std::move(step));
  }
  return steps;
}

int equal_digits(double a, double b) {
  if (a == b) return 17;
  const double relative = std::abs(a - b) / std::max(std::abs(a), std::abs(b));
  if (!std::isfinite(relative)) return 0;
  return std::clamp(static_cast<int>(std::floor(-std::log10(relative))), 0, 17);
}

std::string digits_text(double a, double b) {
  return a == b ? "all" : std::to_string(equal_digits(a, b));
}

}  // namespace flce::cli
