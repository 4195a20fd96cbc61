// SPDX-License-Identifier: Apache-2.0
// The backend of a card that is not at hand. Holds no driver, no stream, no device memory.
#include "cuda/plan_backend.hpp"

#include <algorithm>

#include "core/check.hpp"

namespace flce {
namespace {

// 4096 tokens a chunk: DESIGN section 9 measures 1.00 of three plain products from there on (H200,
// 2026-12-01); 128 rows, which the published rule gives at N=4096, are several times slower.
constexpr std::int64_t kChunkTokens = 4096;

// `recompute` keeps chunk x slab values in 16 bits: about this many bytes, in whole tiles of 128
// rows, so that its products stay large.
constexpr std::int64_t kSlabBytes = std::int64_t{64} << 20;
constexpr std::int64_t kTileRows = 128;
constexpr std::int64_t kMinSlab = 512;
constexpr std::int64_t kMaxSlab = 16384;

[[noreturn]] void no_run_path() {
  fail(
      ErrorCode::kUnsupported,
      "this build has no CUDA run path yet: it plans for CUDA cards but cannot run on them; device "
      "cpu works");
}

class CudaPlanBackend final : public Backend {
 public:
  DeviceKind kind() const override { return DeviceKind::kCuda; }

  void book(const Problem& problem, const DeviceCaps&, const Tiling& tiling, const Kept& kept,
            Ledger& ledger) const override {
    book_cuda(problem, tiling, kept, ledger);
  }

  Tiling preferred_tiling(const Problem& problem, const DeviceCaps&, Method method) const override {
    const std::int64_t tokens = std::clamp<std::int64_t>(problem.tokens, 1, kChunkTokens);
    const std::int64_t rows = kSlabBytes / (2 * tokens) / kTileRows * kTileRows;
    return {method, kChunkTokens, std::clamp(rows, kMinSlab, kMaxSlab)};
  }

  void prepare(const Step&) const override { no_run_path(); }
  void scan_targets(const Step&) const override { no_run_path(); }
  void partial(const Step&, Range, Keep, std::int64_t) const override { no_run_path(); }
  void logits(const Step&, Range, Range) const override { no_run_path(); }
  std::int64_t stats_bytes() const override { no_run_path(); }
  void export_stats(const Step&, Range, std::byte*) const override { no_run_path(); }
  void merge_stats(const Step&, Range, const std::byte*, int) const override { no_run_path(); }
  void combine(const Step&, Range) const override { no_run_path(); }
  void coefficients(const Step&, Range) const override { no_run_path(); }
  void reduce_loss(const Step&) const override { no_run_path(); }
  void grad_hidden(const Step&, Range, Range, std::int64_t, Turn) const override { no_run_path(); }
  void grad_weight(const Step&, Range, Range, std::int64_t, Turn) const override { no_run_path(); }
  void run_eager(const Step&) const override { no_run_path(); }
  // cuBLAS's own workspace is no part of what eager code keeps.
  std::uint64_t eager_scratch_bytes(const Problem&, const DeviceCaps&,
                                    std::int64_t) const override {
    return 0;
  }
  void scale_grads(const VectorView&, const MatrixView&, const MatrixView&,
                   const VectorView&) const override {
    no_run_path();
  }
};

}  // namespace

const Backend& cuda_plan_backend() {
  static const CudaPlanBackend backend;
  return backend;
}

}  // namespace flce
