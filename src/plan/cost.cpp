// SPDX-License-Identifier: Apache-2.0
// Cards, by the roofline: each product takes max(flops / matmul_flops, bytes / (share *
// bandwidth)), the row kernels their bytes. What a small chunk costs is in the bytes: every chunk
// reads the weight again, for the logits and for grad_hidden, and reads and writes the accumulator
// of grad_weight. Must not know how a device cuts its tiles. Processors: cost_cpu.cpp.
//
// Beside what an H200 took (bench/results/h200, 2026-12-01 and 2026-12-02, large vocabularies):
//   bf16, all methods, chunks of 64 to 131072 rows   5 % rms, up to 5 % too long; too short are
//                                                    chunks of 1024 and 512 rows (16 and 7 %) and
//                                                    recompute with 16384 tokens (8 %)
//   f32                                              7 to 10 % too long
//   f32 by tf32 products, not told apart here        6 to 7 times too long
//   512 tokens of H=2048 by route hopper             3 % too long with V=227328, too short by 60 %
//                                                    of 0.25 ms with V=8192: 20 launches in a row
//   GPT-2's head, 1024x768x50257, bf16               2.4 to 4 times too short: its bare products
//                                                    reach 120 TFLOP/s only. `recompute`, which was
//                                                    the fastest of all there, is put behind
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

// Of the data sheet's bandwidth, what products of few rows and the row kernels reach. Fitted by
// least squares of log(estimate / median) to the bf16 rows of large vocabularies: 0.58 to 0.6
// leaves 5 %, 0.5 and 0.7 leave 8 and 9 %, and 1.0 makes chunks of 64 rows 41 % too cheap. Those
// rows on 2026-12-01, fused, 16384x4096x128256 (rows of a chunk: measured ms, estimate with 0.6):
//   64: 569, 575   128: 288, 293   256: 157, 152    512: 105, 103   1024: 90, 80
//   2048: 77, 79   4096: 81, 79    8192: 80, 79   16384: 80, 79
constexpr double kBandwidthShare = 0.6;

struct Traffic {
  double logits = 0.0;
  double grad_hidden = 0.0;
  double grad_weight = 0.0;
};

double elements(std::int64_t rows, std::int64_t cols) {
  return static_cast<double>(rows) * static_cast<double>(cols);
}

// Bytes of the sums of grad_weight over the chunks, and of the result: with several chunks a sum in
// the accumulation type is written first, then read and written, and rounded at the end where the
// result is narrower.
double grad_weight_bytes(const Problem& p, double chunks) {
  const auto wide = static_cast<double>(size_of(accumulation_dtype(p.dtype)));
  const auto result = static_cast<double>(size_of(grad_weight_dtype_of(p)));
  const double sums = (2.0 * chunks - 1.0) * wide;
  const double each = chunks <= 1.0 ? result : sums + (result < wide ? wide + result : 0.0);
  return each * elements(p.vocab, p.hidden);
}

// Bytes moved for each product, all chunks together: logits are written in the accumulation type
// (by eager code in the problem's), their gradient is read in the problem's.
Traffic traffic_of(const Problem& p, Method method, double chunks) {
  const auto in = static_cast<double>(size_of(p.dtype));
  const auto wide = static_cast<double>(size_of(accumulation_dtype(p.dtype)));
  const double logits = elements(p.tokens, p.vocab);
  const double hidden = elements(p.tokens, p.hidden) * in;
  const double weight = chunks * elements(p.vocab, p.hidden) * in;
  Traffic traffic;
  traffic.logits = weight + hidden + logits * (is_eager(method) ? in : wide);
  traffic.grad_hidden = weight + hidden + logits * in;
  traffic.grad_weight = grad_weight_bytes(p, chunks) + hidden + logits * in;
  return traffic;
}

// `recompute` goes over the tokens once per vocabulary slab in its backward pass.
Traffic recompute_traffic(const Problem& p, const Tiling& tiling, double chunks) {
  Traffic traffic = traffic_of(p, tiling.method, chunks);
  const auto slabs = static_cast<double>(Pieces(p.vocab, tiling.slab).count());
  const auto wide = static_cast<double>(size_of(accumulation_dtype(p.dtype)));
  const double hidden = elements(p.tokens, p.hidden);
  traffic.grad_hidden += 2.0 * slabs * hidden * wide;
  traffic.grad_weight += slabs * hidden * static_cast<double>(size_of(p.dtype));
  return traffic;
}

// What the row kernels move of one logit: the statistics read it; the gradient, written in the
// problem's type, reads it again, but in `fused`, whose kernel does both at once.
double row_bytes(const Problem& p, Method method) {
  const auto in = static_cast<double>(size_of(p.dtype));
  const auto wide = static_cast<double>(size_of(accumulation_dtype(p.dtype)));
  // Eager code writes and reads each of its tensors once.
  if (is_eager(method)) return 2.0 * static_cast<double>(eager_logit(p).all_bytes);
  if (!p.wants.any_gradient()) return wide;
  const double column_sums = p.wants.grad_bias ? in : 0.0;
  return (method == Method::kFused ? 1.0 : 2.0) * wide + in + column_sums;
}

}  // namespace

double estimate_seconds(const Problem& p, const DeviceCaps& caps, const Tiling& tiling,
                        int num_gemms, bool allow_tf32) {
  // TF32 operands are twice as wide as 16-bit ones: half their rate (data sheets).
  const double flops_per_second =
      allow_tf32 ? 0.5 * caps.matmul_flops : matmul_flops_of(caps, p.dtype);
  if (flops_per_second <= 0.0) return 0.0;
  if (caps.kind == DeviceKind::kCpu) return estimate_cpu_seconds(p, caps, tiling, num_gemms);
  const double flops = 2.0 * elements(p.tokens, p.hidden) * static_cast<double>(p.vocab);
  const auto moving = [&](double bytes) {
    return caps.bandwidth_bytes > 0.0 ? bytes / (kBandwidthShare * caps.bandwidth_bytes) : 0.0;
  };
  const auto product = [&](double bytes) {
    return std::max(flops / flops_per_second, moving(bytes));
  };
  const bool recompute = tiling.method == Method::kRecompute;
  const auto chunks = static_cast<double>(Pieces(p.tokens, tiling.chunk).count());
  const Traffic traffic =
      recompute ? recompute_traffic(p, tiling, chunks) : traffic_of(p, tiling.method, chunks);
  double seconds = product(traffic.logits);
  if (recompute && p.wants.any_gradient()) seconds += product(traffic.logits);
  if (p.wants.grad_hidden) seconds += product(traffic.grad_hidden);
  if (p.wants.grad_weight) seconds += product(traffic.grad_weight);
  seconds += moving(elements(p.tokens, p.vocab) * row_bytes(p, tiling.method));
  return seconds + kCudaLaunchSeconds * chunks * num_gemms;
}

}  // namespace flce
