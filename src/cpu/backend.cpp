// SPDX-License-Identifier: Apache-2.0
// The CPU backend: its verbs behind the interface, scale_grads, and what the planner may know.
#include "cpu/backend.hpp"

#include <unistd.h>

#include "core/text.hpp"
#include "cpu/memory.hpp"
#include "cpu/threads.hpp"
#include "cpu/verbs.hpp"

namespace flce::cpu {
namespace {

template <typename T>
void scale_row(T* row, std::int64_t count, std::int64_t stride, double factor) {
  for (std::int64_t j = 0; j < count; ++j) {
    row[j * stride] = round_to<T>(widen(row[j * stride]) * factor);
  }
}

void scale_matrix(const MatrixView& matrix, double factor) {
  if (!matrix) return;
  visit_dtype(matrix.dtype, [&]<typename T>(Type<T>) {
    parallel_for(matrix.rows, available_threads(), [&](std::int64_t i, int) {
      scale_row(static_cast<T*>(matrix.data) + i * matrix.row_stride, matrix.cols, 1, factor);
    });
  });
}

}  // namespace

void scale_grads(const VectorView& upstream, const MatrixView& grad_hidden,
                 const MatrixView& grad_weight, const VectorView& grad_bias) {
  const double factor = load_real(upstream, 0);
  if (factor == 1.0) return;
  scale_matrix(grad_hidden, factor);
  scale_matrix(grad_weight, factor);
  if (!grad_bias) return;
  visit_dtype(grad_bias.dtype, [&]<typename T>(Type<T>) {
    scale_row(static_cast<T*>(grad_bias.data), grad_bias.size, grad_bias.stride, factor);
  });
}

namespace {

class CpuBackend final : public Backend {
 public:
  DeviceKind kind() const override { return DeviceKind::kCpu; }
  void book(const Problem& problem, const DeviceCaps& caps, const Tiling& tiling, const Kept& kept,
            Ledger& ledger) const override {
    book_cpu(problem, caps, tiling, kept, ledger);
  }
  Tiling preferred_tiling(const Problem& problem, const DeviceCaps&, Method method,
                          Route) const override {
    return preferred_cpu_tiling(problem, method);
  }
  void prepare(const Step& step) const override { cpu::prepare(step); }
  void scan_targets(const Step& step) const override { cpu::scan_targets(step); }
  void partial(const Step& step, Range tokens, Keep keep, std::int64_t kept_row) const override {
    cpu::partial(step, tokens, keep, kept_row);
  }
  void logits(const Step& step, Range tokens, Range vocab) const override {
    cpu::logits(step, tokens, vocab);
  }
  std::int64_t stats_bytes() const override { return cpu::stats_bytes(); }
  void export_stats(const Step& step, Range tokens, std::byte* to) const override {
    cpu::export_stats(step, tokens, to);
  }
  void merge_stats(const Step& step, Range tokens, const std::byte* gathered,
                   int num_shards) const override {
    cpu::merge_stats(step, tokens, gathered, num_shards);
  }
  void combine(const Step& step, Range tokens) const override { cpu::combine(step, tokens); }
  void coefficients(const Step& step, Range tokens) const override {
    cpu::coefficients(step, tokens);
  }
  void reduce_loss(const Step& step) const override { cpu::reduce_loss(step); }
  void grad_hidden(const Step& step, Range tokens, Range vocab, std::int64_t kept_row,
                   Turn turn) const override {
    cpu::grad_hidden(step, tokens, vocab, kept_row, turn);
  }
  void grad_weight(const Step& step, Range tokens, Range vocab, std::int64_t kept_row,
                   Turn turn) const override {
    cpu::grad_weight(step, tokens, vocab, kept_row, turn);
  }
  void run_eager(const Step& step) const override { cpu::run_eager(step); }
  std::uint64_t eager_scratch_bytes(const Problem& problem, const DeviceCaps& caps,
                                    std::int64_t chunk) const override {
    return cpu::eager_scratch_bytes(problem, caps, chunk);
  }
  void scale_grads(const VectorView& upstream, const MatrixView& grad_hidden,
                   const MatrixView& grad_weight, const VectorView& grad_bias,
                   void*) const override {
    cpu::scale_grads(upstream, grad_hidden, grad_weight, grad_bias);
  }
};

}  // namespace

const Backend& backend() {
  static const CpuBackend instance;
  return instance;
}

}  // namespace flce::cpu

namespace flce {

DeviceCaps cpu_caps() {
  DeviceCaps caps;
  caps.kind = DeviceKind::kCpu;
  write_text(caps.name, "cpu-{}", cpu::isa_name());
  caps.num_threads = cpu::available_threads();
  const long pages = ::sysconf(_SC_PHYS_PAGES);
  const long page_bytes = ::sysconf(_SC_PAGESIZE);
  if (pages > 0 && page_bytes > 0) {
    caps.memory_bytes = static_cast<std::uint64_t>(pages) * static_cast<std::uint64_t>(page_bytes);
  }
  return caps;
}

}  // namespace flce
