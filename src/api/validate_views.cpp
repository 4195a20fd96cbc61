// SPDX-License-Identifier: Apache-2.0
// The caller's memory against the plan: shapes, dtypes, strides, null data, alignment, overlaps.
#include <algorithm>
#include <array>

#include "api/validate.hpp"
#include "core/check.hpp"
#include "core/int_math.hpp"
#include "core/ledger.hpp"

namespace flce {
namespace {

// The bytes from the first to behind the last element that a view can reach.
struct Extent {
  const char* name = nullptr;
  std::uintptr_t begin = 0;
  std::uintptr_t end = 0;
  bool is_output = false;
};

Extent extent_of(const char* name, const void* data, std::int64_t rows, std::int64_t cols,
                 std::int64_t row_stride, std::int64_t col_stride, Dtype dtype, bool is_output) {
  if (rows <= 0 || cols <= 0) return {name, 0, 0, is_output};
  const std::int64_t row_span = (rows - 1) * row_stride;
  const std::int64_t col_span = (cols - 1) * col_stride;
  const std::int64_t low =
      std::min<std::int64_t>(row_span, 0) + std::min<std::int64_t>(col_span, 0);
  const std::int64_t high =
      std::max<std::int64_t>(row_span, 0) + std::max<std::int64_t>(col_span, 0);
  const auto base = reinterpret_cast<std::uintptr_t>(data);
  const std::int64_t size = size_of(dtype);
  return {name, base + static_cast<std::uintptr_t>(low * size),
          base + static_cast<std::uintptr_t>((high + 1) * size), is_output};
}

// Collects the extents of a call's views while checking each of them. Without memory only shapes,
// dtypes and strides are looked at: views that pose a problem may have no data yet.
class ViewCheck {
 public:
  explicit ViewCheck(bool has_memory) : has_memory_(has_memory) {}

  void input(const char* name, const MatrixView& view, std::int64_t rows, std::int64_t cols,
             Dtype dtype) {
    check_matrix(name, view, rows, cols, dtype, false);
  }
  void output(const char* name, const MatrixView& view, std::int64_t rows, std::int64_t cols,
              Dtype dtype) {
    if (dtype != Dtype::kNone) check_matrix(name, view, rows, cols, dtype, true);
  }
  // dtype kNone: the plan has no such input; giving one is a mistake.
  void input(const char* name, const VectorView& view, std::int64_t size, Dtype dtype) {
    if (dtype == Dtype::kNone) {
      require(!view, "{} is given, but the plan was made without it", name);
      return;
    }
    check_vector(name, view, size, dtype, false);
  }
  void output(const char* name, const VectorView& view, std::int64_t size, Dtype dtype) {
    if (dtype != Dtype::kNone) check_vector(name, view, size, dtype, true);
  }
  void buffer(const char* name, std::span<const std::byte> bytes) {
    const auto base = reinterpret_cast<std::uintptr_t>(bytes.data());
    add({name, base, base + bytes.size(), true});
  }

  // No output may overlap anything else.
  void require_disjoint() const {
    for (std::size_t i = 0; i < count_; ++i) {
      for (std::size_t j = i + 1; j < count_; ++j) {
        const Extent& a = extents_[i];
        const Extent& b = extents_[j];
        const bool apart = a.begin >= b.end || b.begin >= a.end;
        require(apart || !(a.is_output || b.is_output),
                "{} and {} overlap in memory; what is written must not overlap anything else",
                a.name, b.name);
      }
    }
  }

 private:
  void check_matrix(const char* name, const MatrixView& view, std::int64_t rows, std::int64_t cols,
                    Dtype dtype, bool is_output) {
    require(static_cast<bool>(view), "{} is missing; the plan needs it as ({}, {}) of {}", name,
            rows, cols, name_of(dtype));
    require(view.rows == rows && view.cols == cols,
            "{} has shape ({}, {}); the plan needs ({}, {})", name, view.rows, view.cols, rows,
            cols);
    require(view.dtype == dtype, "{} has dtype {}; the plan needs {}", name, name_of(view.dtype),
            name_of(dtype));
    require(view.col_stride == 1 || cols <= 1,
            "{} has inner stride {}; elements of a row must be contiguous (inner stride 1), so "
            "copy it once, for example from its transpose",
            name, view.col_stride);
    require(!is_output || rows <= 1 || view.row_stride >= cols,
            "{} has row stride {} and {} columns; rows that are written must not overlap", name,
            view.row_stride, cols);
    check_span(name, rows, view.row_stride);
    if (!has_memory_) return;
    check_pointer(name, view.data, rows > 0 && cols > 0, dtype);
    add(extent_of(name, view.data, rows, cols, view.row_stride, 1, dtype, is_output));
  }

  void check_vector(const char* name, const VectorView& view, std::int64_t size, Dtype dtype,
                    bool is_output) {
    require(static_cast<bool>(view), "{} is missing; the plan needs {} elements of {}", name, size,
            name_of(dtype));
    require(view.size == size, "{} has {} elements; the plan needs {}", name, view.size, size);
    require(view.dtype == dtype, "{} has dtype {}; the plan needs {}", name, name_of(view.dtype),
            name_of(dtype));
    require(!is_output || size <= 1 || view.stride != 0,
            "{} has stride 0; elements that are written must not overlap", name);
    check_span(name, size, view.stride);
    if (!has_memory_) return;
    check_pointer(name, view.data, size > 0, dtype);
    add(extent_of(name, view.data, size, 1, view.stride, 1, dtype, is_output));
  }

  static void check_pointer(const char* name, const void* data, bool is_read, Dtype dtype) {
    require(!is_read || data != nullptr, "{} has a null data pointer", name);
    require(
        reinterpret_cast<std::uintptr_t>(data) % static_cast<std::uintptr_t>(size_of(dtype)) == 0,
        "{} is not aligned to the {} bytes of its elements", name, size_of(dtype));
  }

  static void check_span(const char* name, std::int64_t count, std::int64_t stride) {
    const auto size = static_cast<std::uint64_t>(stride < 0 ? -stride : stride);
    require(saturating_mul(static_cast<std::uint64_t>(count), size) < (std::uint64_t{1} << 59),
            "{} with {} rows and stride {} is larger than any memory", name, count, stride);
  }

  void add(const Extent& extent) {
    if (extent.begin < extent.end) extents_[count_++] = extent;
  }

  bool has_memory_;
  std::array<Extent, 28> extents_{};
  std::size_t count_ = 0;
};

Dtype if_wanted(bool wanted, Dtype dtype) { return wanted ? dtype : Dtype::kNone; }

void check_inputs(ViewCheck& check, const Problem& p, const Inputs& in, Phase phase) {
  const bool is_forward = phase == Phase::kForward;
  check.input("hidden", in.hidden, p.tokens, p.hidden, p.dtype);
  check.input("weight", in.weight, p.vocab, p.hidden, p.dtype);
  check.input("target", in.target, p.tokens, p.target_dtype);
  check.input("bias", in.bias, p.vocab, p.bias_dtype);
  check.input("class_weight", in.class_weight, p.vocab_total(), p.class_weight_dtype);
  check.input("token_weight", in.token_weight, p.tokens, p.token_weight_dtype);
  check.input("temperature", in.temperature, p.tokens, p.temperature_dtype);
  check.input("normalizer", in.normalizer, 1, p.normalizer_dtype);
  // The upstream gradients of a split pass come with the backward call.
  if (!is_forward || in.grad_output) {
    const std::int64_t size = p.upstream == Upstream::kPerToken ? p.tokens : 1;
    check.input("grad_output", in.grad_output, size, p.grad_output_dtype);
  }
  if (!is_forward || in.grad_entropy) {
    check.input("grad_entropy", in.grad_entropy, p.tokens, p.grad_entropy_dtype);
  }
}

void check_results(ViewCheck& check, const Problem& p, const Outputs& out) {
  const Dtype real = p.dtype == Dtype::kF64 ? Dtype::kF64 : Dtype::kF32;
  const Wants& w = p.wants;
  const std::int64_t n = p.options.reduction == Reduction::kNone ? p.tokens : 1;
  check.output("loss", out.loss, n, real);
  check.output("lse", out.lse, p.tokens, if_wanted(w.lse, real));
  check.output("logprob", out.logprob, p.tokens, if_wanted(w.logprob, real));
  check.output("entropy", out.entropy, p.tokens, if_wanted(w.entropy, real));
  check.output("z_loss", out.z_loss, n, if_wanted(w.z_loss, real));
  check.output("argmax", out.argmax, p.tokens, if_wanted(w.argmax, Dtype::kI64));
  check.output("num_correct", out.num_correct, 1, if_wanted(w.num_correct, Dtype::kI64));
  check.output("num_valid", out.num_valid, 1, if_wanted(w.num_valid, Dtype::kI64));
  if (w.topk == 0) return;
  check.output("topk_logprob", out.topk_logprob, p.tokens, w.topk, real);
  check.output("topk_index", out.topk_index, p.tokens, w.topk, Dtype::kI64);
}

void check_grads(ViewCheck& check, const Problem& p, const Outputs& out) {
  const Dtype weight = p.grad_weight_dtype == Dtype::kNone ? p.dtype : p.grad_weight_dtype;
  const Dtype bias = p.grad_bias_dtype == Dtype::kNone ? p.bias_dtype : p.grad_bias_dtype;
  check.output("grad_hidden", out.grad_hidden, p.tokens, p.hidden,
               if_wanted(p.wants.grad_hidden, p.dtype));
  check.output("grad_weight", out.grad_weight, p.vocab, p.hidden,
               if_wanted(p.wants.grad_weight, weight));
  check.output("grad_bias", out.grad_bias, p.vocab, if_wanted(p.wants.grad_bias, bias));
}

// An output that the plan does not know of would silently stay as it was.
void check_unplanned(const Wants& w, const Outputs& out) {
  const auto planned = [](const char* name, bool given, bool wanted) {
    require(!given || wanted, "{} is given, but the plan was made without it", name);
  };
  planned("lse", bool(out.lse), w.lse);
  planned("logprob", bool(out.logprob), w.logprob);
  planned("entropy", bool(out.entropy), w.entropy);
  planned("z_loss", bool(out.z_loss), w.z_loss);
  planned("argmax", bool(out.argmax), w.argmax);
  planned("num_correct", bool(out.num_correct), w.num_correct);
  planned("num_valid", bool(out.num_valid), w.num_valid);
  planned("topk_logprob", bool(out.topk_logprob), w.topk > 0);
  planned("topk_index", bool(out.topk_index), w.topk > 0);
  planned("grad_hidden", bool(out.grad_hidden), w.grad_hidden);
  planned("grad_weight", bool(out.grad_weight), w.grad_weight);
  planned("grad_bias", bool(out.grad_bias), w.grad_bias);
}

// The Hopper kernels fetch and store these rows by TMA. A plan does not know addresses, so who
// plans for unaligned rows must ask for the portable route.
void check_rows_for_hopper(const char* name, const MatrixView& view) {
  constexpr std::int64_t kUnit = 8;
  constexpr std::uintptr_t kBytes = 16;
  const auto address = reinterpret_cast<std::uintptr_t>(view.data);
  const bool has_whole_rows =
      view.rows <= 1 || (view.row_stride % kUnit == 0 && view.row_stride >= view.cols);
  require(has_whole_rows && address % kBytes == 0, ErrorCode::kUnsupported,
          "{} is at address {:#x} with row stride {}; route hopper needs addresses of whole {} "
          "bytes and rows behind each other, at strides of whole {} elements; route portable "
          "(PlanRequest::route) takes any",
          name, address, view.row_stride, kBytes, kUnit);
}

}  // namespace

void validate_buffer(const char* name, std::span<const std::byte> buffer, std::uint64_t bytes) {
  if (bytes == 0) return;
  require(buffer.size() >= bytes, ErrorCode::kWorkspaceTooSmall,
          "{} has {} bytes; the plan needs {}", name, buffer.size(), bytes);
  const auto address = reinterpret_cast<std::uintptr_t>(buffer.data());
  require(buffer.data() != nullptr, "{} has a null data pointer", name);
  require(address % Ledger::kAlignment == 0,
          "{} is at address {:#x}; it must be aligned to {} bytes", name, address,
          Ledger::kAlignment);
}

void validate_shapes(const Problem& p, const Inputs& inputs, const Outputs& outputs) {
  ViewCheck check(false);
  check_inputs(check, p, inputs, Phase::kRun);
  check_results(check, p, outputs);
  check_grads(check, p, outputs);
}

void validate_views(const Plan& plan, const Inputs& inputs, const Outputs& outputs, Phase phase,
                    bool writes_grads, std::span<const std::byte> workspace,
                    std::span<const std::byte> saved) {
  const Problem& p = plan.problem;
  ViewCheck check(true);
  check_inputs(check, p, inputs, phase);
  check_unplanned(p.wants, outputs);
  if (phase != Phase::kBackward) check_results(check, p, outputs);
  if (writes_grads) check_grads(check, p, outputs);
  if (plan.route == Route::kHopper) {
    check_rows_for_hopper("hidden", inputs.hidden);
    check_rows_for_hopper("weight", inputs.weight);
    if (writes_grads && p.wants.grad_hidden)
      check_rows_for_hopper("grad_hidden", outputs.grad_hidden);
    if (writes_grads && p.wants.grad_weight)
      check_rows_for_hopper("grad_weight", outputs.grad_weight);
  }
  if (plan.workspace_bytes > 0) check.buffer("workspace", workspace.first(plan.workspace_bytes));
  if (plan.saved_bytes > 0) check.buffer("saved", saved.first(plan.saved_bytes));
  check.require_disjoint();
}

}  // namespace flce
