// SPDX-License-Identifier: Apache-2.0
// The planning half of the CUDA backend: pure, and the same for cards that are not at hand. Its
// verbs refuse; the running half (run/backend.cpp, in libflce_cuda.so) overrides them.
#pragma once

#include "backend/backend.hpp"

namespace flce {

class CudaPlanBackend : public Backend {
 public:
  DeviceKind kind() const override { return DeviceKind::kCuda; }
  RouteChoice route(const Problem& problem, const DeviceCaps& caps, const PlanRequest& request,
                    Method method) const override;
  void book(const Problem& problem, const DeviceCaps& caps, const Tiling& tiling, const Kept& kept,
            Ledger& ledger) const override;
  Tiling preferred_tiling(const Problem& problem, const DeviceCaps& caps, Method method,
                          Route route) const override;
  std::uint64_t eager_scratch_bytes(const Problem& problem, const DeviceCaps& caps,
                                    std::int64_t chunk) const override;
  std::uint64_t eager_state_bytes(const Problem& problem) const override;
  std::int64_t stats_bytes() const override;

  void prepare(const Step&) const override;
  void scan_targets(const Step&) const override;
  void partial(const Step&, Range, Keep, std::int64_t) const override;
  void logits(const Step&, Range, Range) const override;
  void export_stats(const Step&, Range, std::byte*) const override;
  void merge_stats(const Step&, Range, const std::byte*, int) const override;
  void combine(const Step&, Range) const override;
  void coefficients(const Step&, Range) const override;
  void reduce_loss(const Step&) const override;
  void grad_hidden(const Step&, Range, Range, std::int64_t, Turn) const override;
  void grad_weight(const Step&, Range, Range, std::int64_t, Turn) const override;
  void run_eager(const Step&) const override;
  void scale_grads(const VectorView&, const MatrixView&, const MatrixView&, const VectorView&,
                   void*) const override;
};

const Backend& cuda_plan_backend();

}  // namespace flce
