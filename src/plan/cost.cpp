// SPDX-License-Identifier: Apache-2.0
// Cards, by the roofline: each product takes max(flops / matmul_flops, bytes / bandwidth). What a
// small chunk costs is in the bytes: every chunk reads the weight again, for the logits and for
// grad_hidden, and reads and writes the accumulator of grad_weight. Must not know how a device cuts
// its tiles. Processors: cost_cpu.cpp.
#include "plan/cost.hpp"

#include <algorithm>

#include "backend/eager.hpp"
#include "core/ranges.hpp"
#include "plan/bytes.hpp"
#include "plan/caps.hpp"

namespace flce {
namespace {

// From the host's call to the kernel's start. The order of magnitude, not a measurement of ours.
constexpr double kCudaLaunchSeconds = 5e-6;

struct Traffic {
  double logits = 0.0;
  double grad_hidden = 0.0;
  double grad_weight = 0.0;
};

// Bytes moved for each product, all chunks together.
Traffic traffic_of(const Problem& p, const Tiling& tiling, double chunks) {
  const double in = static_cast<double>(size_of(p.dtype));
  const double wide = static_cast<double>(size_of(accumulation_dtype(p.dtype)));
  const double rows = static_cast<double>(p.tokens);
  const double hidden = rows * static_cast<double>(p.hidden) * in;
  const double weight = static_cast<double>(p.vocab) * static_cast<double>(p.hidden);
  const bool exponentials = tiling.method == Method::kFused && p.dtype == Dtype::kBF16;
  const double logits = rows * static_cast<double>(p.vocab) * (exponentials ? in : wide);
  const double gw = static_cast<double>(size_of(grad_weight_dtype_of(p)));
  const double accumulated = (chunks > 1.0 ? 2.0 * chunks * wide : gw) * weight;
  Traffic traffic;
  traffic.logits = chunks * weight * in + hidden + logits;
  traffic.grad_hidden = chunks * weight * in + hidden + logits;
  traffic.grad_weight = accumulated + hidden + logits;
  return traffic;
}

// `recompute` goes over the tokens once per vocabulary slab in its backward pass.
Traffic recompute_traffic(const Problem& p, const Tiling& tiling) {
  Traffic traffic = traffic_of(p, tiling, 1.0);
  const double slabs = static_cast<double>(Pieces(p.vocab, tiling.slab).count());
  const double wide = static_cast<double>(size_of(accumulation_dtype(p.dtype)));
  const double hidden = static_cast<double>(p.tokens) * static_cast<double>(p.hidden);
  traffic.grad_hidden += 2.0 * slabs * hidden * wide;
  traffic.grad_weight += slabs * hidden * static_cast<double>(size_of(p.dtype));
  return traffic;
}

// What is moved beside the products: f32 logits are turned into their gradient by one more pass,
// and eager code writes and reads each of its tensors once.
double passes_bytes(const Problem& p, Method method) {
  const EagerLogit eager = eager_logit(p);
  if (!is_eager(method) && method != Method::kNaive && method != Method::kChunked) return 0.0;
  const std::int64_t element =
      is_eager(method) ? eager.all_bytes : size_of(accumulation_dtype(p.dtype));
  return 2.0 * static_cast<double>(bytes_of(p.tokens, p.vocab, element));
}

}  // namespace

double estimate_seconds(const Problem& p, const DeviceCaps& caps, const Tiling& tiling,
                        int num_gemms) {
  const double flops_per_second = matmul_flops_of(caps, p.dtype);
  if (flops_per_second <= 0.0) return 0.0;
  if (caps.kind == DeviceKind::kCpu) return estimate_cpu_seconds(p, caps, tiling, num_gemms);
  const double flops = 2.0 * static_cast<double>(p.tokens) * static_cast<double>(p.hidden) *
                       static_cast<double>(p.vocab);
  const auto product = [&](double bytes) {
    const double moving = caps.bandwidth_bytes > 0.0 ? bytes / caps.bandwidth_bytes : 0.0;
    return std::max(flops / flops_per_second, moving);
  };
  const bool recompute = tiling.method == Method::kRecompute;
  const double chunks = static_cast<double>(Pieces(p.tokens, tiling.chunk).count());
  const Traffic traffic = recompute ? recompute_traffic(p, tiling) : traffic_of(p, tiling, chunks);
  const double weight_bytes = bytes_of(p.vocab, p.hidden, size_of(p.dtype));
  double seconds = product(traffic.logits + (recompute ? (chunks - 1.0) * weight_bytes : 0.0));
  if (p.wants.grad_hidden) seconds += product(traffic.grad_hidden);
  if (p.wants.grad_weight) seconds += product(traffic.grad_weight);
  if (recompute && p.wants.any_gradient()) seconds += product(traffic.logits);
  if (caps.bandwidth_bytes > 0.0) seconds += passes_bytes(p, tiling.method) / caps.bandwidth_bytes;
  return seconds + kCudaLaunchSeconds * chunks * num_gemms;
}

}  // namespace flce
