// SPDX-License-Identifier: Apache-2.0
// Holds no driver, no stream, no device memory.
#include "cuda/plan_backend.hpp"

#include <algorithm>

#include "core/check.hpp"
#include "core/int_math.hpp"
#include "cuda/odds_sizes.hpp"
#include "cuda/route.hpp"
#include "cuda/sizes.hpp"
#include "kernels/portable/state.hpp"

namespace flce {
namespace {

// 4096 tokens a chunk: from there on `fused` takes what three plain products take; 128 rows, which
// the published rule gives at N=4096, take several times as long (docs/measured.md, H200).
constexpr std::int64_t kChunkTokens = 4096;

// `recompute` works on chunk x slab logits: all tokens up to kSlabTokens, so that a slab's rows of
// grad_weight are one product, and a slab that brings the whole, with grad_hidden's sums and the
// packed hidden rows, to about cuda::kSlabBytes. A slab costs a pass over the sums, so it has a
// least size: at 16384 x 4096 x 128256 in bf16 slabs of 4096, 6144, 8192, 12288 and 16384 rows took
// 1.475, 1.467, 1.429, 1.401 and 1.408 of the three plain products, with 0.71, 0.84, 0.98, 1.24 and
// 1.51 GB (H200, 2026-12-02).
constexpr std::int64_t kLeastSlab = 8192;
constexpr std::int64_t kSlabTokens = 16384;
constexpr std::int64_t kTileRows = 256;

[[noreturn]] void no_run_path() {
  fail(ErrorCode::kInternal, "the planning half of the CUDA backend was asked to run");
}

}  // namespace

RouteChoice CudaPlanBackend::route(const Problem& problem, const DeviceCaps& caps,
                                   const PlanRequest& request, Method method) const {
  return cuda::choose_route(problem, caps, request, method);
}

void CudaPlanBackend::book(const Problem& problem, const DeviceCaps&, const Tiling& tiling,
                           const Kept& kept, Ledger& ledger) const {
  cuda::book(problem, tiling, kept, ledger);
}

Tiling CudaPlanBackend::preferred_tiling(const Problem& p, const DeviceCaps&, Method method,
                                         Route route) const {
  if (method != Method::kRecompute) return {method, kChunkTokens, p.vocab, route};
  const std::int64_t tokens = std::clamp<std::int64_t>(p.tokens, 1, kSlabTokens);
  if (route == Route::kHopper) return {method, kSlabTokens, cuda::odds_slab(p, tokens), route};
  const auto slab_of = [](std::int64_t rows) {
    return std::clamp(rows / kTileRows * kTileRows, kLeastSlab, cuda::kMaxSlab);
  };
  const std::int64_t wide = size_of(accumulation_dtype(p.dtype));
  const std::int64_t sums = p.tokens * p.hidden * wide + tokens * p.hidden * size_of(p.dtype);
  const std::int64_t room = std::max<std::int64_t>(cuda::kSlabBytes - sums, 0);
  return {method, kSlabTokens, slab_of(room / (wide * tokens)), route};
}

// cuBLASLt's own workspace, which eager code has beside its tensors.
std::uint64_t CudaPlanBackend::eager_scratch_bytes(const Problem& problem, const DeviceCaps&,
                                                   std::int64_t chunk) const {
  return cuda::gemm_scratch_bytes(problem, chunk);
}

// The call's sums, then the tokens'.
std::uint64_t CudaPlanBackend::eager_state_bytes(const Problem& problem) const {
  return bytes_of(problem.tokens, 1, sizeof(cuda::TokenState)) + cuda::kTotalsBytes;
}

std::int64_t CudaPlanBackend::stats_bytes() const { return sizeof(RowStats); }

void CudaPlanBackend::prepare(const Step&) const { no_run_path(); }
void CudaPlanBackend::scan_targets(const Step&) const { no_run_path(); }
void CudaPlanBackend::partial(const Step&, Range, Keep, std::int64_t) const { no_run_path(); }
void CudaPlanBackend::logits(const Step&, Range, Range) const { no_run_path(); }
void CudaPlanBackend::export_stats(const Step&, Range, std::byte*) const { no_run_path(); }
void CudaPlanBackend::merge_stats(const Step&, Range, const std::byte*, int) const {
  no_run_path();
}
void CudaPlanBackend::combine(const Step&, Range) const { no_run_path(); }
void CudaPlanBackend::coefficients(const Step&, Range) const { no_run_path(); }
void CudaPlanBackend::reduce_loss(const Step&) const { no_run_path(); }
void CudaPlanBackend::grad_hidden(const Step&, Range, Range, std::int64_t, Turn) const {
  no_run_path();
}
void CudaPlanBackend::grad_weight(const Step&, Range, Range, std::int64_t, Turn) const {
  no_run_path();
}
void CudaPlanBackend::run_eager(const Step&) const { no_run_path(); }
void CudaPlanBackend::scale_grads(const VectorView&, const MatrixView&, const MatrixView&,
                                  const VectorView&, void*) const {
  no_run_path();
}

const Backend& cuda_plan_backend() {
  static const CudaPlanBackend backend;
  return backend;
}

}  // namespace flce
