// SPDX-License-Identifier: Apache-2.0
// The time of a method on a processor, from the measured peak of its multiply-add units and the
// bandwidth of its memory:
//
//   seconds = products / (kProductShare * peak)
//             + (logits, gradients, pieces of the weight) * their nanoseconds / threads
//             + (kept values, weight, grad_weight) * bytes / bandwidth
//
// What is no product is bound by loads, shuffles and stores rather than by multiply-adds, so it
// takes nanoseconds of one thread, not a share of the peak. A small chunk costs through the terms
// that every chunk pays for the whole weight: packing it for two products, and adding to all rows
// of grad_weight.
#include <algorithm>
#include <cmath>

#include "backend/eager.hpp"
#include "core/ranges.hpp"
#include "plan/bytes.hpp"
#include "plan/cost.hpp"

namespace flce {
namespace {

// Fitted by scripts/dev/fit_cpu_cost.py to the rows of `flce bench`; its head says how to repeat
// it. All but the first in nanoseconds of one thread.
constexpr double kProductShare = 0.84;     // of the peak that packed products sustain
constexpr double kLogitNs = 0.74;          // a logit: exponential, maximum, sums
constexpr double kExpGradientNs = 0.40;    // a gradient made from an exponential, packed
constexpr double kLogitGradientNs = 0.75;  // the same from a logit
constexpr double kNarrowNs = 0.19;         // an exponential rounded to 16 bits, or widened
constexpr double kPackedWeightNs = 0.01;   // an element of the weight, packed
constexpr double kAddedWeightNs = 0.01;    // an element of grad_weight, added to
constexpr double kNarrowWeightNs = 0.50;   // more for a sum beside 16 bits of grad_weight
constexpr double kEagerNs = 6.85;          // a logit of eager code: its passes
constexpr double kEagerAgain = 1.5;        // passes where several chunks make some of them twice
constexpr double kPieceTokens = 512.0;     // of which statistics are held (src/cpu/memory.hpp)

struct Work {
  double ns = 0.0;  // of one thread
  double bytes = 0.0;
};

double elements(std::int64_t rows, std::int64_t cols) {
  return static_cast<double>(rows) * static_cast<double>(cols);
}

// How often the logits are made.
double times_made(const Problem& p, const Tiling& tiling) {
  return tiling.method == Method::kRecompute && p.wants.any_gradient() ? 2.0 : 1.0;
}

// Passes over the whole weight.
struct Passes {
  double logits = 0.0;  // products that make logits
  double chunks = 0.0;  // the two gradients' products
};

Passes passes_of(const Problem& p, const Tiling& tiling) {
  Passes passes;
  passes.chunks = static_cast<double>(Pieces(p.tokens, tiling.chunk).count());
  const double pieces =
      std::max(1.0, std::floor(static_cast<double>(tiling.chunk) / kPieceTokens + 0.5));
  const bool is_whole = tiling.method == Method::kFused || is_eager(tiling.method);
  passes.logits = passes.chunks * times_made(p, tiling) * (is_whole ? 1.0 : pieces);
  return passes;
}

// The logits, and what is kept of them.
Work logit_work(const Problem& p, const Tiling& tiling) {
  const double logits = elements(p.tokens, p.vocab);
  const int gradients = (p.wants.grad_hidden ? 1 : 0) + (p.wants.grad_weight ? 1 : 0);
  const bool has_exponentials = tiling.method == Method::kFused;
  Work work;
  work.ns = logits * times_made(p, tiling) * kLogitNs;
  work.ns += logits * gradients * (has_exponentials ? kExpGradientNs : kLogitGradientNs);
  if (!p.wants.any_gradient()) return work;
  const bool is_narrow = has_exponentials && p.dtype == Dtype::kBF16;
  if (is_narrow) work.ns += logits * (1 + gradients) * kNarrowNs;
  const std::int64_t kept = size_of(is_narrow ? Dtype::kBF16 : accumulation_dtype(p.dtype));
  work.bytes = logits * (1.0 + gradients) * static_cast<double>(kept);
  return work;
}

// With several chunks the backward pass makes copy and log-probabilities again.
Work eager_work(const Problem& p, const Tiling& tiling) {
  const double again = tiling.chunk < p.tokens && p.wants.any_gradient() ? kEagerAgain : 1.0;
  const double logits = elements(p.tokens, p.vocab);
  const auto bytes = static_cast<double>(eager_logit(p).all_bytes);
  return {logits * (kLogitNs + again * kEagerNs), 2.0 * again * logits * bytes};
}

Work weight_work(const Problem& p, const Tiling& tiling) {
  const double weight = elements(p.vocab, p.hidden);
  const auto in = static_cast<double>(size_of(p.dtype));
  const auto wide = static_cast<double>(size_of(accumulation_dtype(p.dtype)));
  const Passes passes = passes_of(p, tiling);
  Work work;
  const double packed = passes.logits + (p.wants.grad_hidden ? passes.chunks : 0.0);
  work.ns = packed * weight * kPackedWeightNs;
  work.bytes = packed * weight * in;
  if (p.wants.grad_weight) {
    const bool is_split = passes.chunks > 1.0 && size_of(grad_weight_dtype_of(p)) < 4;
    work.ns += passes.chunks * weight * (kAddedWeightNs + (is_split ? kNarrowWeightNs : 0.0));
    work.bytes += (2.0 * passes.chunks - 1.0) * weight * (passes.chunks > 1.0 ? wide : in);
  }
  return work;
}

}  // namespace

double estimate_cpu_seconds(const Problem& p, const DeviceCaps& caps, const Tiling& tiling,
                            int num_gemms) {
  const double products =
      2.0 * num_gemms * elements(p.tokens, p.hidden) * static_cast<double>(p.vocab);
  const Work logits = is_eager(tiling.method) ? eager_work(p, tiling) : logit_work(p, tiling);
  const Work weight = weight_work(p, tiling);
  double seconds = products / (kProductShare * caps.matmul_flops);
  seconds += 1e-9 * (logits.ns + weight.ns) / std::max(caps.num_threads, 1);
  if (caps.bandwidth_bytes > 0.0) seconds += (logits.bytes + weight.bytes) / caps.bandwidth_bytes;
  return seconds;
}

}  // namespace flce
