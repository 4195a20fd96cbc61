// SPDX-License-Identifier: Apache-2.0
// The running half of the CUDA backend: the verbs behind the interface, and the check that all of a
// call's memory is on one device, which becomes the current one for the call.
#include "cuda/run/backend.hpp"

#include "core/check.hpp"
#include "cuda/plan_backend.hpp"
#include "cuda/route.hpp"
#include "cuda/run/current.hpp"
#include "cuda/run/odds.hpp"
#include "cuda/run/verbs.hpp"

namespace flce::cuda {
namespace {

// Finds the device that the memory of a call lies on.
class Locator {
 public:
  void look(const char* name, const void* data) {
    if (data == nullptr) return;
    cudaPointerAttributes attributes{};
    check_cuda(cudaPointerGetAttributes(&attributes, data), "looking at a pointer");
    const bool is_reachable =
        attributes.type == cudaMemoryTypeDevice || attributes.type == cudaMemoryTypeManaged;
    require(is_reachable,
            "{} is at {}, in host memory; a plan for device cuda needs it on the device (copy it "
            "there, or plan for device cpu)",
            name, data);
    if (device_ < 0) {
      device_ = attributes.device;
      first_ = name;
    }
    require(attributes.device == device_,
            "{} is on CUDA device {} and {} on device {}; all of a call's memory must be on one "
            "device",
            first_, device_, name, attributes.device);
  }
  void look(const char* name, const MatrixView& view) {
    if (view.rows > 0 && view.cols > 0) look(name, view.data);
  }
  void look(const char* name, const VectorView& view) {
    if (view.size > 0) look(name, view.data);
  }
  int device() const { return device_; }

 private:
  int device_ = -1;
  const char* first_ = "";
};

// `reads_upstream`: not in a forward call, which only has to know that there will be one.
void look_at_inputs(const Inputs& in, bool reads_upstream, Locator& locator) {
  locator.look("hidden", in.hidden);
  locator.look("weight", in.weight);
  locator.look("target", in.target);
  locator.look("bias", in.bias);
  locator.look("class_weight", in.class_weight);
  locator.look("token_weight", in.token_weight);
  locator.look("temperature", in.temperature);
  locator.look("normalizer", in.normalizer);
  if (!reads_upstream) return;
  locator.look("grad_output", in.grad_output);
  locator.look("grad_entropy", in.grad_entropy);
}

void look_at_outputs(const Outputs& out, Locator& locator) {
  locator.look("loss", out.loss);
  locator.look("lse", out.lse);
  locator.look("logprob", out.logprob);
  locator.look("entropy", out.entropy);
  locator.look("z_loss", out.z_loss);
  locator.look("argmax", out.argmax);
  locator.look("num_correct", out.num_correct);
  locator.look("num_valid", out.num_valid);
  locator.look("topk_logprob", out.topk_logprob);
  locator.look("topk_index", out.topk_index);
  locator.look("grad_hidden", out.grad_hidden);
  locator.look("grad_weight", out.grad_weight);
  locator.look("grad_bias", out.grad_bias);
}

// cuBLASLt wants rows that follow each other (hidden rows are packed anyway), and the kernels count
// columns in 32 bits.
void check_weight(const MatrixView& weight) {
  constexpr std::int64_t kMostRows = std::int64_t{1} << 31;
  require(weight.rows < kMostRows, ErrorCode::kUnsupported,
          "weight has {} rows; on device cuda it must have fewer than 2^31", weight.rows);
  require(weight.rows <= 1 || weight.row_stride >= weight.cols, ErrorCode::kUnsupported,
          "weight has row stride {} and {} columns; on device cuda its rows must follow each other "
          "(row stride of at least {}), so copy it once",
          weight.row_stride, weight.cols, weight.cols);
}

// cuBLASLt has no kernels for rows further apart.
void check_row_stride(const char* name, const MatrixView& view) {
  constexpr std::int64_t kMost = (std::int64_t{1} << 31) - 1;
  require(view.rows <= 1 || view.row_stride <= kMost, ErrorCode::kUnsupported,
          "{} has row stride {}; on device cuda it is at most {} elements, so use a tensor whose "
          "rows are closer",
          name, view.row_stride, kMost);
}

bool is_hopper(const Step& step) { return step.plan->route == Route::kHopper; }

class CudaBackend final : public CudaPlanBackend {
 public:
  int begin(const Step& step) const override {
    Locator locator;
    look_at_inputs(*step.inputs, step.is_backward || step.problem().pass == Pass::kRun, locator);
    look_at_outputs(*step.outputs, locator);
    locator.look("workspace", step.workspace);
    locator.look("saved", step.saved);
    check_weight(step.inputs->weight);
    check_row_stride("weight", step.inputs->weight);
    check_row_stride("grad_hidden", step.outputs->grad_hidden);
    check_row_stride("grad_weight", step.outputs->grad_weight);
    require(kHasHopper || !is_hopper(step), ErrorCode::kUnsupported,
            "the plan is for route hopper, but libflce_cuda.so is without its kernels; plan with "
            "route portable, or install both libraries from one build");
    const int before = current_device();
    if (locator.device() >= 0 && locator.device() != before) {
      check_cuda(cudaSetDevice(locator.device()), "making the memory's device the current one");
    }
    return before;
  }
  void end(int before) const noexcept override { cudaSetDevice(before); }
  void check_targets(const Step& step) const override { cuda::check_targets(step); }

  void prepare(const Step& step) const override {
    cuda::prepare(step);
    if constexpr (kHasHopper) {
      if (is_hopper(step)) odds::prepare(step);
    }
  }
  void scan_targets(const Step& step) const override { cuda::scan_targets(step); }
  void partial(const Step& step, Range tokens, Keep keep, std::int64_t kept_row) const override {
    if constexpr (kHasHopper) {
      if (is_hopper(step)) return odds::partial(step, tokens);
    }
    cuda::partial(step, tokens, keep, kept_row);
  }
  void fused_chunk(const Step& step, Range tokens, Keep) const override {
    if constexpr (kHasHopper) {
      if (is_hopper(step)) return odds::fused_chunk(step, tokens);
    }
    cuda::fused_chunk(step, tokens);
  }
  void logits(const Step& step, Range tokens, Range vocab) const override {
    if constexpr (kHasHopper) {
      if (is_hopper(step)) return odds::logits(step, tokens, vocab);
    }
    cuda::logits(step, tokens, vocab);
  }
  void export_stats(const Step& step, Range tokens, std::byte* to) const override {
    cuda::export_stats(step, tokens, to);
  }
  void merge_stats(const Step& step, Range tokens, const std::byte* gathered,
                   int num_shards) const override {
    cuda::merge_stats(step, tokens, gathered, num_shards);
  }
  void combine(const Step& step, Range tokens) const override { cuda::combine(step, tokens); }
  void coefficients(const Step& step, Range tokens) const override {
    cuda::coefficients(step, tokens);
  }
  void reduce_loss(const Step& step) const override { cuda::reduce_loss(step); }
  void grad_hidden(const Step& step, Range tokens, Range vocab, std::int64_t kept_row,
                   Turn turn) const override {
    if constexpr (kHasHopper) {
      if (is_hopper(step)) return odds::grad_hidden(step, tokens, vocab, turn);
    }
    cuda::grad_hidden(step, tokens, vocab, kept_row, turn);
  }
  void grad_weight(const Step& step, Range tokens, Range vocab, std::int64_t kept_row,
                   Turn turn) const override {
    if constexpr (kHasHopper) {
      if (is_hopper(step)) return odds::grad_weight(step, tokens, vocab, turn);
    }
    cuda::grad_weight(step, tokens, vocab, kept_row, turn);
  }
  void run_eager(const Step& step) const override { cuda::run_eager(step); }
  void scale_grads(const VectorView& upstream, const MatrixView& grad_hidden,
                   const MatrixView& grad_weight, const VectorView& grad_bias,
                   void* stream) const override {
    Locator locator;
    locator.look("upstream", upstream);
    locator.look("grad_hidden", grad_hidden);
    locator.look("grad_weight", grad_weight);
    locator.look("grad_bias", grad_bias);
    const DeviceScope scope(locator.device() >= 0 ? locator.device() : current_device());
    cuda::scale_grads(upstream, grad_hidden, grad_weight, grad_bias, stream);
  }
};

}  // namespace

const Backend& backend() {
  static const CudaBackend instance;
  return instance;
}

}  // namespace flce::cuda
