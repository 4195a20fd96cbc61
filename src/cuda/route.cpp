// SPDX-License-Identifier: Apache-2.0
// What the Hopper kernels take. Everything else is the portable route's, which takes everything.
#include "cuda/route.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "core/dtypes.hpp"
#include "core/text.hpp"
#include "plan/caps.hpp"

namespace flce::cuda {
namespace {

constexpr int kHopperCapability = 90;
// TMA fetches rows that begin on 16 bytes.
constexpr std::int64_t kHiddenUnit = 8;
constexpr std::int64_t kMaxHidden = std::int64_t{1} << 20;
// A capped logit is exact to 2^-23 of the softcap.
constexpr double kLeastSoftcap = 1.0 / 1024.0;
constexpr double kLargestSoftcap = 128.0;
// Rows and columns are counted by 32-bit integers; larger heads are untried.
constexpr std::int64_t kMaxVocab = std::int64_t{1} << 24;
constexpr std::int64_t kMaxTokens = std::int64_t{1} << 31;

// Measured (docs/kernels/hopper.md): with chunks of 512 and 1024 tokens it takes longer.
constexpr std::int64_t kLeastChunk = 2048;

// The first condition that is not met, as a clause about "it", the route.
class Unmet {
 public:
  template <typename... Args>
  void unless(bool holds, fmt::format_string<Args...> clause, Args&&... args) {
    if (!holds && text_[0] == '\0') write_text(text_, clause, std::forward<Args>(args)...);
  }
  bool none() const { return text_[0] == '\0'; }
  const std::array<char, 160>& text() const { return text_; }

 private:
  std::array<char, 160> text_{};
};

// One line a condition: a line goes when the kernels learn what it excludes.
Unmet unmet_by(const Problem& p, Method method) {
  const Options& o = p.options;
  const Wants& w = p.wants;
  Unmet unmet;
  unmet.unless(p.dtype == Dtype::kBF16, "it takes bf16, not {}", name_of(p.dtype));
  unmet.unless(p.hidden >= kHiddenUnit && p.hidden % kHiddenUnit == 0,
               "it takes a hidden size that is a multiple of {}, not {}", kHiddenUnit, p.hidden);
  unmet.unless(p.hidden < kMaxHidden, "it takes a hidden size below {}, not {}", kMaxHidden,
               p.hidden);
  unmet.unless(p.vocab >= 1, "it takes 1 vocabulary row or more");
  unmet.unless(p.vocab < kMaxVocab, "it takes fewer than {} vocabulary rows, not {}", kMaxVocab,
               p.vocab);
  unmet.unless(p.tokens >= 1, "it takes 1 token or more");
  unmet.unless(p.tokens < kMaxTokens, "it takes fewer than {} tokens, not {}", kMaxTokens,
               p.tokens);
  unmet.unless(p.shard.total == 0, "it takes whole heads, none that is split over ranks");
  unmet.unless(o.softcap == 0.0 || (o.softcap >= kLeastSoftcap && o.softcap <= kLargestSoftcap),
               "it takes softcaps from {:.3g} to {:.3g}, not {:.3g}", kLeastSoftcap,
               kLargestSoftcap, o.softcap);
  unmet.unless(o.label_smoothing == 0.0 || o.softcap == 0.0,
               "it does not take label smoothing together with a softcap");
  unmet.unless(w.topk == 0, "it does not give the top-k");
  unmet.unless(method == Method::kFused || method == Method::kRecompute,
               "it computes fused and recompute, not {}", name_of(method));
  return unmet;
}

}  // namespace

bool has_hopper() noexcept { return kHasHopper; }

RouteChoice choose_route(const Problem& problem, const DeviceCaps& caps, const PlanRequest& request,
                         Method method) {
  RouteChoice choice{Route::kPortable};
  if (request.route == Route::kPortable) return choice;
  const bool is_hopper = capability_of(caps) == kHopperCapability;
  // Where nobody asked, there is nothing to explain about a card that has one route.
  if (request.route == Route::kAuto && !is_hopper) return choice;
  if (!is_hopper) {
    write_text(choice.reason, "it needs a card of compute capability 9.0 (h100-80, h200), not '{}'",
               caps.name.data());
    return choice;
  }
  if (!has_hopper()) {
    write_text(choice.reason, "this build is without its kernels");
    return choice;
  }
  const bool is_small = request.chunk > 0 && request.chunk < std::min(kLeastChunk, problem.tokens);
  const bool by_rule = request.chunk == 0 && request.policy == ChunkPolicy::kLiger;
  if (request.route == Route::kAuto && (is_small || by_rule)) {
    write_text(choice.reason, "with chunks of fewer than {} tokens the portable one is faster",
               kLeastChunk);
    return choice;
  }
  const Unmet unmet = unmet_by(problem, method);
  choice.reason = unmet.text();
  if (unmet.none()) choice.route = Route::kHopper;
  return choice;
}

}  // namespace flce::cuda
