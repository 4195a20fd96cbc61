// SPDX-License-Identifier: Apache-2.0
// What would take less than a plan: smaller chunks, another method, a budget. Every figure is what
// the planner says of the request that is offered, and nothing is offered that it does not say to
// be less. Asks the planner through the public interface and decides nothing.
#include <algorithm>
#include <functional>
#include <optional>

#include "core/int_math.hpp"
#include "core/ranges.hpp"
#include "flce/advice.hpp"
#include "flce/flce.hpp"

namespace flce {
namespace {

bool is_cut(Method method) {
  return method == Method::kChunked || method == Method::kFused || method == Method::kRecompute;
}

bool is_fused(Method method) { return method == Method::kFused || method == Method::kRecompute; }

DeviceCaps without_limit(const DeviceCaps& caps) {
  DeviceCaps unlimited = caps;
  unlimited.memory_bytes = 0;
  return unlimited;
}

ChunkCost cost_of(const Plan& plan) {
  const Problem& p = plan.problem;
  ChunkCost cost;
  cost.chunk = plan.chunk;
  cost.num_chunks = plan.num_chunks;
  cost.gemm_calls = gemm_calls(plan);
  cost.extra_bytes = plan.extra_bytes;
  cost.seconds = plan.seconds;
  cost.route = plan.route;
  if (p.tokens > 0 && p.hidden > 0) {
    cost.logits_over_hidden = static_cast<double>(plan.chunk) * static_cast<double>(p.vocab) /
                              (static_cast<double>(p.tokens) * static_cast<double>(p.hidden));
  }
  return cost;
}

// Collects requests, each of which the planner answers with fewer bytes than the one before; the
// first one, with fewer than the plan at hand.
class Offers {
 public:
  explicit Offers(const Plan& plan) : plan_(plan) {
    if (plan.method != Method::kAuto) least_bytes_ = plan.extra_bytes;
  }

  // The request at hand, its limit too, with a method and a chunk (0: the planner's) of its own.
  bool add(int step, Method method, std::int64_t chunk = 0) {
    PlanRequest request = free_request();
    request.budget_bytes = plan_.request.budget_bytes;
    request.method = method;
    request.chunk = chunk;
    return add(step, request);
  }

  bool add_budget(int step) {
    const SmallestBudget least = smallest_budget(plan_.problem, plan_.caps, plan_.request);
    if (least.method == Method::kAuto) return false;
    PlanRequest request = free_request();
    request.budget_bytes = least.bytes;
    return add(step, request);
  }

  const std::vector<Offer>& offers() const { return offers_; }

 private:
  PlanRequest free_request() const {
    PlanRequest request;
    request.route = plan_.request.route;
    request.allow_tf32 = plan_.request.allow_tf32;
    return request;
  }

  bool add(int step, const PlanRequest& request) {
    const Plan other = plan_report(plan_.problem, plan_.caps, request);
    if (other.method == Method::kAuto || other.extra_bytes >= least_bytes_) return false;
    offers_.push_back({step, request, other.method, other.chunk, gemm_calls(other),
                       other.extra_bytes, other.seconds});
    least_bytes_ = other.extra_bytes;
    return true;
  }

  const Plan& plan_;
  std::vector<Offer> offers_;
  // Of the plan at hand and of all offers; where nothing serves as asked, whatever does is one.
  std::uint64_t least_bytes_ = kSaturated;
};

// Of the smaller chunks that take less, the largest one that saves at least half of what any of
// them does: smaller ones start more products for little. 0: none takes less.
std::int64_t chunk_that_saves(const std::vector<ChunkCost>& costs) {
  std::uint64_t most = 0;
  const auto saved = [&](const ChunkCost& cost) {
    if (cost.chunk > costs[0].chunk) return std::uint64_t{0};
    return costs[0].extra_bytes - std::min(costs[0].extra_bytes, cost.extra_bytes);
  };
  for (const ChunkCost& cost : costs) most = std::max(most, saved(cost));
  if (most == 0) return 0;
  for (const ChunkCost& cost : costs) {
    if (saved(cost) >= most - most / 2) return cost.chunk;
  }
  return 0;
}

}  // namespace

std::int64_t gemm_calls(const Plan& plan) {
  if (plan.method == Method::kAuto) return 0;
  const std::int64_t gemms = plan.methods[static_cast<std::size_t>(plan.method) - 1].gemms;
  if (plan.method != Method::kRecompute) return gemms * plan.num_chunks;
  // Forward by token chunks; backward by token chunks within vocabulary slabs.
  const std::int64_t slabs = Pieces(plan.problem.vocab, plan.slab).count();
  return plan.num_chunks * (1 + (gemms - 1) * slabs);
}

std::vector<ChunkCost> chunk_costs(const Plan& plan) {
  std::vector<ChunkCost> costs;
  if (!is_cut(plan.method) || plan.problem.tokens <= 0) return costs;
  costs.push_back(cost_of(plan));
  const std::int64_t liger =
      plan.problem.vocab > 0
          ? liger_rule(plan.problem.tokens, plan.problem.hidden, plan.problem.vocab).chunk
          : 0;
  costs[0].is_liger = plan.chunk == liger;
  std::vector<std::int64_t> chunks;
  for (std::int64_t part = 2; part <= 16 && plan.chunk / part >= 1; part *= 2) {
    chunks.push_back(plan.chunk / part);
  }
  if (liger > 0 && liger != plan.chunk) chunks.push_back(liger);
  std::sort(chunks.begin(), chunks.end(), std::greater<>());
  chunks.erase(std::unique(chunks.begin(), chunks.end()), chunks.end());
  for (const std::int64_t chunk : chunks) {
    PlanRequest request = plan.request;
    request.method = plan.method;
    request.chunk = chunk;
    request.budget_bytes = 0;
    const Plan other = plan_report(plan.problem, without_limit(plan.caps), request);
    if (other.method == Method::kAuto) continue;
    costs.push_back(cost_of(other));
    costs.back().is_liger = chunk == liger;
  }
  return costs;
}

SmallestBudget smallest_budget(const Problem& problem, const DeviceCaps& caps,
                               const PlanRequest& asked) {
  // One byte is less than any method needs, so each reports the least that it works with.
  PlanRequest request;
  request.route = asked.route;
  request.allow_tf32 = asked.allow_tf32;
  request.budget_bytes = 1;
  const Plan report = plan_report(problem, without_limit(caps), request);
  SmallestBudget least;
  for (const Method method :
       {Method::kFused, Method::kRecompute, Method::kChunked, Method::kNaive}) {
    const MethodReport& r = report.methods[static_cast<std::size_t>(method) - 1];
    const bool is_other_route = asked.route != Route::kAuto && asked.route != r.route;
    if (r.peak_bytes == 0 || r.peak_bytes == kSaturated || is_other_route) continue;
    if (least.method != Method::kAuto && r.extra_bytes >= least.bytes) continue;
    least = {r.extra_bytes, method, r.chunk};
  }
  return least;
}

std::vector<Offer> oom_offers(const Plan& plan) {
  Offers offers(plan);
  bool has_recompute = plan.method == Method::kRecompute;
  if (!is_fused(plan.method) && !offers.add(kFuseStep, Method::kFused)) {
    has_recompute = offers.add(kFuseStep, Method::kRecompute);
  }
  const std::vector<ChunkCost> costs = chunk_costs(plan);
  const std::int64_t chunk = costs.empty() ? 0 : chunk_that_saves(costs);
  if (chunk > 0) offers.add(kBudgetStep, plan.method, chunk);
  // A chunk that was asked for may be the dearer one, and may have turned the route.
  const bool is_asked = plan.request.chunk > 0 || plan.request.policy != ChunkPolicy::kMeasured;
  if (is_asked && is_cut(plan.method)) offers.add(kBudgetStep, plan.method);
  if (!has_recompute) offers.add(kBudgetStep, Method::kRecompute);
  offers.add_budget(kBudgetStep);
  return offers.offers();
}

std::string spell_request(const PlanRequest& request, Spelling spelling) {
  // The words stand at the end of a problem's text.
  const Problem none;
  std::string words = format_problem(none, request).substr(format_problem(none).size());
  if (!words.empty()) words.erase(0, 1);
  if (spelling == Spelling::kWords) return words;
  std::string options;
  bool is_word_start = true;
  for (const char c : words) {
    if (is_word_start) options += "--";
    is_word_start = c == ' ';
    options += c == '=' ? ' ' : c;
  }
  return options;
}

}  // namespace flce
