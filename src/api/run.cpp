// SPDX-License-Identifier: Apache-2.0
// The public entry points: validate once, then hand the plan's verbs to the method.
#include "api/planning.hpp"
#include "api/registry.hpp"
#include "api/validate.hpp"
#include "core/check.hpp"
#include "core/env.hpp"
#include "plan/planner.hpp"

namespace flce {
namespace {

const MethodInfo& runnable_method(const Plan& plan) {
  const MethodInfo* info = find_method(plan.method);
  require(info != nullptr, "the plan names no method; make it with flce::plan");
  const char* reason = info->planned_only != nullptr ? info->planned_only(plan.problem) : nullptr;
  require(reason == nullptr, ErrorCode::kUnsupported,
          "{} models other code's memory: {}; naive, chunked, fused and recompute run this problem",
          name_of(plan.method), reason);
  return *info;
}

void require_pass(const Plan& plan, Pass pass, const char* call) {
  const auto calls = [](Pass p) {
    return p == Pass::kRun ? "one run call" : "a forward and a backward call";
  };
  require(plan.problem.pass == pass,
          "{} was called with a plan for {}; it needs a plan for {} (Problem::pass)", call,
          calls(plan.problem.pass), calls(pass));
}

Step step_of(const Plan& plan, const MethodInfo& method, const Inputs& inputs,
             const Outputs& outputs, std::span<std::byte> workspace, std::span<std::byte> saved,
             const RunOptions& options) {
  Step step;
  step.plan = &plan;
  step.inputs = &inputs;
  step.outputs = &outputs;
  step.workspace = workspace.data();
  step.saved = saved.data();
  step.report = options.report;
  step.stream = options.stream;
  step.kept = method.kept(plan.problem, {plan.method, plan.chunk, plan.slab, plan.route});
  return step;
}

// The verbs of one call, on the device of its memory.
template <typename Verbs>
void carry_out(const Backend& backend, const Step& step, const RunOptions& options, Verbs verbs) {
  struct Session {
    const Backend& backend;
    int before;
    ~Session() { backend.end(before); }
  } session{backend, backend.begin(step)};
  backend.prepare(step);
  verbs();
  if (options.check_targets || environment().check_targets) backend.check_targets(step);
}

}  // namespace

Plan checked_plan(const Problem& problem, const DeviceCaps& caps, const PlanRequest& request,
                  bool report_only, std::int64_t slab) {
  validate_problem(problem);
  validate_request(request, caps, problem.dtype);
  return make_plan(registry(), problem, caps, request, report_only, slab);
}

Plan plan(const Problem& problem, const DeviceCaps& caps, const PlanRequest& request) {
  return checked_plan(problem, caps, request, false);
}

Plan plan_report(const Problem& problem, const DeviceCaps& caps, const PlanRequest& request) {
  return checked_plan(problem, caps, request, true);
}

void run(const Plan& plan, const Inputs& inputs, const Outputs& outputs,
         std::span<std::byte> workspace, const RunOptions& options) {
  const MethodInfo& method = runnable_method(plan);
  require_pass(plan, Pass::kRun, "run");
  validate_buffer("workspace", workspace, plan.workspace_bytes);
  validate_views(plan, inputs, outputs, Phase::kRun, true, workspace, {});
  const Backend& backend = running_backend(plan.caps.kind);
  const Step step = step_of(plan, method, inputs, outputs, workspace, {}, options);
  carry_out(backend, step, options, [&] {
    method.forward(backend, step);
    if (plan.problem.wants.any_gradient()) method.backward(backend, step);
  });
}

void forward(const Plan& plan, const Inputs& inputs, const Outputs& outputs,
             std::span<std::byte> workspace, std::span<std::byte> saved,
             const RunOptions& options) {
  const MethodInfo& method = runnable_method(plan);
  require_pass(plan, Pass::kForwardBackward, "forward");
  validate_buffer("workspace", workspace, plan.workspace_bytes);
  validate_buffer("saved", saved, plan.saved_bytes);
  const bool writes_grads = plan.method == Method::kFused;
  validate_views(plan, inputs, outputs, Phase::kForward, writes_grads, workspace, saved);
  const Backend& backend = running_backend(plan.caps.kind);
  Step step = step_of(plan, method, inputs, outputs, workspace, saved, options);
  step.unit_upstream = true;
  carry_out(backend, step, options, [&] { method.forward(backend, step); });
}

void backward(const Plan& plan, const Inputs& inputs, const Outputs& outputs,
              std::span<std::byte> workspace, std::span<std::byte> saved,
              const RunOptions& options) {
  const MethodInfo& method = runnable_method(plan);
  require_pass(plan, Pass::kForwardBackward, "backward");
  validate_buffer("workspace", workspace, plan.workspace_bytes);
  validate_buffer("saved", saved, plan.saved_bytes);
  validate_views(plan, inputs, outputs, Phase::kBackward, true, workspace, saved);
  if (!plan.problem.wants.any_gradient()) return;
  const Backend& backend = running_backend(plan.caps.kind);
  Step step = step_of(plan, method, inputs, outputs, workspace, saved, options);
  step.is_backward = true;
  carry_out(backend, step, options, [&] { method.backward(backend, step); });
}

void scale_grads(const VectorView& upstream, const MatrixView& grad_hidden,
                 const MatrixView& grad_weight, const VectorView& grad_bias, DeviceKind device,
                 void* stream) {
  require(upstream.size == 1 && upstream.data != nullptr &&
              (upstream.dtype >= Dtype::kF64 && upstream.dtype <= Dtype::kF16),
          "upstream has {} elements of {}; scale_grads multiplies by one number of f64, f32, bf16 "
          "or f16",
          upstream.size, name_of(upstream.dtype));
  for (const MatrixView* grad : {&grad_hidden, &grad_weight}) {
    require(!*grad || grad->col_stride == 1 || grad->cols <= 1,
            "a gradient has inner stride {}; its rows must be contiguous (inner stride 1)",
            grad->col_stride);
    require(!*grad || grad->data != nullptr || grad->rows * grad->cols == 0,
            "a gradient has a null data pointer");
  }
  require(!grad_bias || grad_bias.data != nullptr || grad_bias.size == 0,
          "grad_bias has a null data pointer");
  running_backend(device).scale_grads(upstream, grad_hidden, grad_weight, grad_bias, stream);
}

}  // namespace flce
