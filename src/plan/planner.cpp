// SPDX-License-Identifier: Apache-2.0
// Every method is asked the same questions: can you serve this, at which tiling, with how many
// bytes. The first one in the registry's order that serves and fits is the plan; the answers of all
// stay in it. Calls no device, reads no clock and no environment.
#include "plan/planner.hpp"

#include <optional>
#include <string>
#include <string_view>

#include "backend/eager.hpp"
#include "core/check.hpp"
#include "core/int_math.hpp"
#include "core/ranges.hpp"
#include "core/text.hpp"
#include "plan/budget.hpp"
#include "plan/bytes.hpp"
#include "plan/cost.hpp"

namespace flce {
namespace {

enum class Answer { kServes, kCannot, kTooBig };

struct Evaluation {
  Answer answer = Answer::kCannot;
  MethodReport report;
  Booking booking;
};

void write_too_big(const Scope& scope, MethodReport& report) {
  const Limits& limits = scope.limits;
  if (report.peak_bytes == kSaturated) {
    write_text(report.refusal, "needs more bytes than 64 bits can count");
    return;
  }
  if (!limits.inputs_fit || report.extra_bytes > limits.memory_extra) {
    write_text(report.refusal,
               "needs {} of memory in all at least ({} extra, chunk {}), the device has {}; fewer "
               "tokens or a smaller dtype would take less",
               bytes_text(report.peak_bytes).data(), bytes_text(report.extra_bytes).data(),
               report.chunk, bytes_text(scope.caps.memory_bytes).data());
    return;
  }
  write_text(report.refusal,
             "needs {} bytes ({}) of extra memory at least, with chunk {}; the budget is {} bytes",
             report.extra_bytes, bytes_text(report.extra_bytes).data(), report.chunk,
             scope.request.budget_bytes);
}

// Why no method of a device can serve the problem.
void refuse_for_device(const Scope& scope, std::array<char, 320>& text) {
  if (scope.caps.kind == DeviceKind::kCuda && scope.problem.shard.total != 0) {
    write_text(text, "a head split over ranks runs on the CPU only; use device cpu");
  }
}

// An asked-for route that does not serve. The bytes of the method stay, for comparison.
void refuse_for_route(const Scope& scope, const RouteChoice& route, MethodReport& report) {
  const Route asked = scope.request.route;
  if (asked == Route::kAuto || asked == route.route) return;
  write_text(report.refusal, "route {}: {}; route={} works", name_of(asked), route.reason.data(),
             name_of(route.route));
}

Evaluation evaluate(const Scope& scope, const MethodInfo& method, std::uint64_t io_bytes) {
  Evaluation result;
  MethodReport& report = result.report;
  report.method = method.method;
  report.gemms = method.num_gemms(scope.problem);
  report.planned_only =
      method.planned_only != nullptr && method.planned_only(scope.problem) != nullptr;
  refuse_for_device(scope, report.refusal);
  if (!report.refused() && method.refusal != nullptr) method.refusal(scope.problem, report.refusal);
  if (report.refused()) return result;

  const RouteChoice route =
      scope.backend.route(scope.problem, scope.caps, scope.request, method.method);
  report.route = route.route;
  if (scope.request.route == Route::kAuto) report.route_reason = route.reason;
  const Choice choice = choose_tiling(scope, method, route.route);
  const Booking& booking = choice.booking;
  report.chunk = booking.tiling.chunk;
  report.num_chunks = Pieces(scope.problem.tokens, report.chunk).count();
  report.workspace_bytes = booking.workspace_bytes;
  report.saved_bytes = booking.saved_bytes;
  report.extra_bytes = booking.extra_bytes;
  report.peak_bytes = saturating_add(io_bytes, booking.extra_bytes);
  report.seconds = estimate_seconds(scope.problem, scope.caps, booking.tiling, report.gemms,
                                    scope.request.allow_tf32);
  result.booking = booking;
  refuse_for_route(scope, route, report);
  if (report.refused()) return result;
  result.answer = choice.fits ? Answer::kServes : Answer::kTooBig;
  if (!choice.fits) write_too_big(scope, report);
  return result;
}

// As evaluate; where that does not fit by a route that nobody asked for, by the portable one if
// that takes less.
Evaluation evaluate_least(const Scope& scope, const MethodInfo& method, std::uint64_t io_bytes) {
  Evaluation first = evaluate(scope, method, io_bytes);
  const bool is_portable = first.report.route != Route::kHopper;
  if (first.answer != Answer::kTooBig || is_portable || scope.request.route != Route::kAuto) {
    return first;
  }
  PlanRequest portable = scope.request;
  portable.route = Route::kPortable;
  const Scope other{scope.backend, scope.problem, scope.caps, portable, scope.limits, scope.slab};
  Evaluation second = evaluate(other, method, io_bytes);
  if (second.report.extra_bytes >= first.report.extra_bytes) return first;
  write_text(second.report.route_reason, "it needs {} of extra memory at least",
             bytes_text(first.report.extra_bytes).data());
  return second;
}

void adopt(Plan& plan, const Evaluation& chosen) {
  plan.method = chosen.report.method;
  plan.chunk = chosen.report.chunk;
  plan.slab = chosen.booking.tiling.slab;
  plan.num_chunks = chosen.report.num_chunks;
  plan.route = chosen.report.route;
  plan.slots = chosen.booking.slots;
  plan.workspace_bytes = chosen.report.workspace_bytes;
  plan.saved_bytes = chosen.report.saved_bytes;
  plan.extra_bytes = chosen.report.extra_bytes;
  plan.peak_bytes = chosen.report.peak_bytes;
  plan.seconds = chosen.report.seconds;
}

// The method that needs least, among those that serve the problem at all.
struct Least {
  std::optional<Evaluation> evaluation;
  void consider(const Evaluation& e) {
    if (e.answer == Answer::kCannot) return;
    if (!evaluation || e.report.extra_bytes < evaluation->report.extra_bytes) evaluation = e;
  }
};

// What the request may be answered with: the method that it names, or any of ours.
bool is_eligible(const MethodInfo& method, const PlanRequest& request) {
  return request.method == Method::kAuto ? !method.is_eager : request.method == method.method;
}

Least least_of(const Scope& scope, const Registry& registry, std::uint64_t io_bytes) {
  Least least;
  for (int i = 0; i < registry.num_methods; ++i) {
    const MethodInfo& method = *registry.methods[i];
    if (is_eligible(method, scope.request)) least.consider(evaluate_least(scope, method, io_bytes));
  }
  return least;
}

[[noreturn]] void fail_unsupported(const Plan& plan) {
  const Method asked = plan.request.method;
  if (asked != Method::kAuto) {
    fail(ErrorCode::kUnsupported, "method {}: {}", name_of(asked),
         plan.methods[static_cast<int>(asked) - 1].refusal.data());
  }
  std::string reasons;
  std::string_view last;
  for (const MethodReport& report : plan.methods) {
    if (is_eager(report.method) || view_text(report.refusal) == last) continue;
    last = view_text(report.refusal);
    reasons += fmt::format("; {}: {}", name_of(report.method), last);
  }
  fail(ErrorCode::kUnsupported, "no method serves this problem{}", reasons);
}

[[noreturn]] void fail_too_big(const Scope& scope, const Registry& registry, const Plan& plan) {
  const std::uint64_t io_bytes = saturating_add(plan.input_bytes, plan.output_bytes);
  const MethodReport asked = least_of(scope, registry, io_bytes).evaluation->report;
  PlanRequest any = scope.request;
  any.method = Method::kAuto;
  any.chunk = 0;
  const Scope free_scope{scope.backend, scope.problem, scope.caps, any, scope.limits};
  const MethodReport least = least_of(free_scope, registry, io_bytes).evaluation->report;
  const std::string others =
      least.extra_bytes < asked.extra_bytes
          ? fmt::format(
                "; with any method and chunk it is {} bytes ({}), with method {} and chunk {}",
                least.extra_bytes, bytes_text(least.extra_bytes).data(), name_of(least.method),
                least.chunk)
          : std::string();
  if (asked.peak_bytes == kSaturated) {
    fail(ErrorCode::kOutOfBudget,
         "sizes n{}_h{}_v{}: the problem needs more bytes than 64 bits can count; smaller sizes "
         "can be planned",
         plan.problem.tokens, plan.problem.hidden, plan.problem.vocab);
  }
  if (!scope.limits.inputs_fit || asked.extra_bytes > scope.limits.memory_extra) {
    fail(
        ErrorCode::kOutOfBudget,
        "does not fit into the {} bytes ({}) of device '{}': inputs and outputs take {} bytes ({}) "
        "and the smallest extra memory that works is {} bytes ({}), with method {} and chunk {}{}; "
        "fewer tokens would take less",
        scope.caps.memory_bytes, bytes_text(scope.caps.memory_bytes).data(), scope.caps.name.data(),
        io_bytes, bytes_text(io_bytes).data(), asked.extra_bytes,
        bytes_text(asked.extra_bytes).data(), name_of(asked.method), asked.chunk, others);
  }
  fail(ErrorCode::kOutOfBudget,
       "the budget of {} bytes ({}) is too small: the smallest budget that works is {} bytes ({}), "
       "with method {} and chunk {}{}",
       scope.request.budget_bytes, bytes_text(scope.request.budget_bytes).data(), asked.extra_bytes,
       bytes_text(asked.extra_bytes).data(), name_of(asked.method), asked.chunk, others);
}

// What a plan holds before any method was asked.
Plan empty_plan(const Problem& problem, const DeviceCaps& caps, const PlanRequest& request) {
  Plan plan;
  plan.problem = problem;
  plan.caps = caps;
  plan.request = request;
  plan.route = request.route;
  if (caps.kind == DeviceKind::kCuda && plan.route == Route::kAuto) plan.route = Route::kPortable;
  plan.input_bytes = input_bytes_of(problem);
  plan.output_bytes = output_bytes_of(problem);
  for (int i = 0; i < static_cast<int>(plan.methods.size()); ++i) {
    plan.methods[i].method = static_cast<Method>(i + 1);
    write_text(plan.methods[i].refusal, "this build does not have it");
  }
  return plan;
}

}  // namespace

Plan make_plan(const Registry& registry, const Problem& problem, const DeviceCaps& caps,
               const PlanRequest& request, bool report_only, std::int64_t slab) {
  const Backend* backend = registry.backend_of(caps.kind);
  require(backend != nullptr, ErrorCode::kUnsupported,
          "this build has no backend for device {}; device cpu works", name_of(caps.kind));
  Plan plan = empty_plan(problem, caps, request);
  const std::uint64_t io_bytes = saturating_add(plan.input_bytes, plan.output_bytes);
  const Scope scope{*backend, problem, caps, request, limits_of(io_bytes, caps, request), slab};
  bool too_big = false;
  const auto ask = [&](const MethodInfo& method, const Evaluation& evaluation) {
    plan.methods[static_cast<int>(method.method) - 1] = evaluation.report;
    if (!is_eligible(method, request)) return;
    too_big |= evaluation.answer == Answer::kTooBig;
    if (evaluation.answer == Answer::kServes && plan.method == Method::kAuto) {
      adopt(plan, evaluation);
    }
  };
  for (int i = 0; i < registry.num_methods; ++i) {
    ask(*registry.methods[i], evaluate(scope, *registry.methods[i], io_bytes));
  }
  // The faster route is given up only where no method fits by it.
  for (int i = 0; too_big && plan.method == Method::kAuto && i < registry.num_methods; ++i) {
    const MethodInfo& method = *registry.methods[i];
    if (is_eligible(method, request)) ask(method, evaluate_least(scope, method, io_bytes));
  }
  if (plan.method != Method::kAuto || report_only) return plan;
  if (too_big) fail_too_big(scope, registry, plan);
  fail_unsupported(plan);
}

}  // namespace flce
