// SPDX-License-Identifier: Apache-2.0
// ALL chunk rules. A tiling is first what was asked for (PlanRequest::chunk), or what the policy
// says; if that exceeds the limit, the largest chunk that fits. Must not know what a slot is for.
//
// extra_bytes grows with the chunk, but for one step: with a single chunk no accumulator of
// grad_weight is needed, so chunk = N can take less than N - 1. With the slab of `recompute` it is
// alike: V rows need no sums of grad_hidden on a card. The search therefore tries N and V apart and
// looks for the largest fitting chunk below; what it names as the least is the least there is. It
// never relies on growth for its answer to fit: every tiling that is returned as fitting was booked
// and compared.
#include "plan/budget.hpp"

#include <algorithm>

#include "core/int_math.hpp"
#include "flce/plan.hpp"

namespace flce {
namespace {

// Vocabulary rows below which `recompute` is not cut further: the products get too thin.
constexpr std::int64_t kSmallestSlab = 64;

std::int64_t clamped(std::int64_t value, std::int64_t upper) {
  return std::clamp<std::int64_t>(value, 1, std::max<std::int64_t>(upper, 1));
}

// The eager variants are cut like the method that they are a variant of.
Method cut_like(Method method) {
  if (method == Method::kNaiveEager) return Method::kNaive;
  return method == Method::kChunkedEager ? Method::kChunked : method;
}

// Before any limit is considered.
Tiling wanted_tiling(const Scope& scope, const MethodInfo& method, Route route) {
  const Problem& p = scope.problem;
  Tiling tiling = scope.backend.preferred_tiling(p, scope.caps, cut_like(method.method), route);
  tiling.method = method.method;
  tiling.route = route;
  if (scope.slab > 0) tiling.slab = scope.slab;
  tiling.slab = method.method == Method::kRecompute ? clamped(tiling.slab, p.vocab)
                                                    : std::max<std::int64_t>(p.vocab, 1);
  if (!has_chunks(method.method)) {
    tiling.chunk = p.tokens;
  } else if (scope.request.chunk > 0) {
    tiling.chunk = scope.request.chunk;
  } else if (scope.request.policy == ChunkPolicy::kLiger && p.vocab > 0) {
    tiling.chunk = liger_rule(p.tokens, p.hidden, p.vocab).chunk;
  }
  tiling.chunk = clamped(tiling.chunk, p.tokens);
  return tiling;
}

// Tries tilings against the limit and remembers the one that needs least.
class Search {
 public:
  Search(const Scope& scope, const MethodInfo& method) : scope_(scope), method_(method) {}

  bool fits(const Tiling& tiling) {
    const Booking booking =
        book_method(scope_.backend, method_, scope_.problem, scope_.caps, tiling);
    const bool fit = scope_.limits.inputs_fit && booking.extra_bytes <= scope_.limits.extra();
    if (fit) {
      choice_ = {true, booking};
    } else if (!choice_.fits && (!any_ || booking.extra_bytes < choice_.booking.extra_bytes)) {
      choice_.booking = booking;
    }
    any_ = true;
    return fit;
  }

  // Whether one token a chunk fits; then with the largest chunk in [1, high) that does.
  bool fits_cut(Tiling tiling, std::int64_t high) {
    std::int64_t low = tiling.chunk = 1;
    if (!fits(tiling)) return false;
    while (high - low > 1) {
      tiling.chunk = low + (high - low) / 2;
      (fits(tiling) ? low : high) = tiling.chunk;
    }
    return true;
  }

  const Choice& choice() const { return choice_; }

 private:
  const Scope& scope_;
  const MethodInfo& method_;
  Choice choice_;
  bool any_ = false;
};

}  // namespace

Limits limits_of(std::uint64_t io_bytes, const DeviceCaps& caps, const PlanRequest& request) {
  // Bytes that saturated do not fit into anything.
  constexpr std::uint64_t kNoLimit = kSaturated - 1;
  Limits limits;
  limits.inputs_fit = io_bytes != kSaturated;
  limits.memory_extra = limits.inputs_fit ? kNoLimit - io_bytes : 0;
  limits.budget_extra = request.budget_bytes > 0 ? request.budget_bytes : kNoLimit;
  if (caps.memory_bytes > 0) {
    limits.inputs_fit = io_bytes <= caps.memory_bytes;
    limits.memory_extra = limits.inputs_fit ? caps.memory_bytes - io_bytes : 0;
  }
  return limits;
}

Choice choose_tiling(const Scope& scope, const MethodInfo& method, Route route) {
  const Tiling wanted = wanted_tiling(scope, method, route);
  const std::int64_t tokens = std::max<std::int64_t>(scope.problem.tokens, 1);
  // What is planned only for comparison is not squeezed into a limit.
  const bool is_answer = !method.is_eager || scope.request.method == method.method;
  const bool chunk_is_free = is_answer && has_chunks(method.method) && scope.request.chunk <= 0;
  const bool slab_is_free = method.method == Method::kRecompute && scope.slab == 0;
  Search search(scope, method);
  if (search.fits(wanted)) return search.choice();

  Tiling tiling = wanted;
  if (chunk_is_free) {
    tiling.chunk = tokens;
    if (wanted.chunk < tokens && search.fits(tiling)) return search.choice();
    tiling.chunk = wanted.chunk;
  }
  if (slab_is_free) {
    while (tiling.slab > kSmallestSlab) {
      tiling.slab = std::max(tiling.slab / 2, kSmallestSlab);
      if (search.fits(tiling)) return search.choice();
    }
  }
  if (chunk_is_free && search.fits_cut(tiling, wanted.chunk)) return search.choice();
  if (!slab_is_free) return search.choice();
  // A single chunk, and a single slab, need no sums.
  if (chunk_is_free) {
    tiling.chunk = tokens;
    if (search.fits(tiling)) return search.choice();
  }
  tiling.slab = std::max<std::int64_t>(scope.problem.vocab, 1);
  chunk_is_free ? search.fits_cut(tiling, tokens) : search.fits(tiling);
  return search.choice();
}

}  // namespace flce
