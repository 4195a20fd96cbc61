// SPDX-License-Identifier: Apache-2.0
// A libflce_cuda.so without CUDA, for machines without a card: two cards whose memory is the host's
// and whose work is done by the CPU backend. What it shows is whether the doors bring everything to
// the card and back: it refuses memory that was not allocated on the current card, fresh memory
// holds garbage, and a target out of range is only noticed when somebody asks.
#include <cstdlib>
#include <cstring>
#include <exception>
#include <map>
#include <mutex>
#include <optional>

#include "core/check.hpp"
#include "cuda/library.hpp"
#include "cuda/plan_backend.hpp"
#include "flce/flce.hpp"

namespace flce {
namespace {

constexpr std::uint64_t kMemoryBytes = std::uint64_t{8} << 30;

thread_local int current = 0;

struct Block {
  std::uint64_t bytes = 0;
  int device = 0;
};

// Everything that is allocated.
class Blocks {
 public:
  void add(const void* memory, Block block) {
    const std::lock_guard lock(mutex_);
    blocks_[memory] = block;
  }
  void remove(const void* memory) {
    const std::lock_guard lock(mutex_);
    require(blocks_.erase(memory) == 1, "pretend CUDA: freed what was not allocated");
  }
  void require_here(const char* what, const void* data) {
    if (data == nullptr) return;
    const std::lock_guard lock(mutex_);
    auto after = blocks_.upper_bound(data);
    const bool known = after != blocks_.begin();
    require(known, "pretend CUDA: {} is not on the card", what);
    const auto& [begin, block] = *--after;
    require(static_cast<const char*>(data) < static_cast<const char*>(begin) + block.bytes,
            "pretend CUDA: {} is not on the card", what);
    require(block.device == current, "pretend CUDA: {} is on card {}, {} is current", what,
            block.device, current);
  }
  std::uint64_t bytes() {
    const std::lock_guard lock(mutex_);
    std::uint64_t sum = 0;
    for (const auto& [begin, block] : blocks_) sum += block.bytes;
    return sum;
  }

 private:
  std::mutex mutex_;
  std::map<const void*, Block> blocks_;
};

Blocks& blocks() {
  static Blocks instance;
  return instance;
}

void require_all_here(const Step& step) {
  const Inputs& in = *step.inputs;
  const Outputs& out = *step.outputs;
  for (const MatrixView* view : {&in.hidden, &in.weight, &out.topk_logprob, &out.topk_index,
                                 &out.grad_hidden, &out.grad_weight}) {
    blocks().require_here("a matrix", view->data);
  }
  for (const VectorView* view :
       {&in.target, &in.bias, &in.class_weight, &in.token_weight, &in.temperature, &in.normalizer,
        &in.grad_output, &in.grad_entropy, &out.loss, &out.lse, &out.logprob, &out.entropy,
        &out.z_loss, &out.argmax, &out.num_correct, &out.num_valid, &out.grad_bias}) {
    blocks().require_here("a vector", view->data);
  }
  blocks().require_here("the workspace", step.workspace);
  blocks().require_here("the saved memory", step.saved);
}

// Does all of a call's work when it begins; the verbs but one have nothing left to do.
class PretendBackend final : public CudaPlanBackend {
 public:
  int begin(const Step& step) const override {
    require_all_here(step);
    failure_ = nullptr;
    try {
      compute(step);
    } catch (const Error& error) {
      if (error.code() != ErrorCode::kTargetOutOfRange) throw;
      failure_ = std::current_exception();
    }
    if (step.report != nullptr) {
      *step.report = {step.plan->workspace_bytes, step.plan->saved_bytes};
    }
    return 0;
  }
  void check_targets(const Step&) const override {
    if (failure_) std::rethrow_exception(failure_);
  }
  void prepare(const Step&) const override {}
  void scan_targets(const Step&) const override {}
  void partial(const Step&, Range, Keep, std::int64_t) const override {}
  void logits(const Step&, Range, Range) const override {}
  void combine(const Step&, Range) const override {}
  void coefficients(const Step&, Range) const override {}
  void reduce_loss(const Step&) const override {}
  void grad_hidden(const Step&, Range, Range, std::int64_t, Turn) const override {}
  void grad_weight(const Step&, Range, Range, std::int64_t, Turn) const override {}
  void run_eager(const Step&) const override {}
  void scale_grads(const VectorView& upstream, const MatrixView& grad_hidden,
                   const MatrixView& grad_weight, const VectorView& grad_bias,
                   void*) const override {
    flce::scale_grads(upstream, grad_hidden, grad_weight, grad_bias);
  }

 private:
  void compute(const Step& step) const {
    const PlanRequest request{.method = step.plan->method, .chunk = step.plan->chunk};
    const Plan plan = flce::plan(step.problem(), cpu_caps(), request);
    Workspace workspace(plan.workspace_bytes);
    if (plan.problem.pass == Pass::kRun) {
      run(plan, *step.inputs, *step.outputs, workspace.span());
    } else if (!step.is_backward) {
      saved_.emplace(plan.saved_bytes);
      forward(plan, *step.inputs, *step.outputs, workspace.span(), saved_->span());
    } else if (plan.method != Method::kFused) {  // fused only scales, by the verb above
      backward(plan, *step.inputs, *step.outputs, workspace.span(), saved_->span());
    }
  }

  // One call at a time, as the commands do.
  mutable std::exception_ptr failure_;
  mutable std::optional<Workspace> saved_;
};

class PretendLibrary final : public CudaLibrary {
 public:
  const std::string& refusal() const override { return refusal_; }
  const Backend& backend() const override { return backend_; }
  std::vector<std::string> kernels() const override { return {"pretended"}; }
  std::vector<CudaDevice> devices() const override {
    std::vector<CudaDevice> all;
    for (int i = 0; i < 2; ++i) all.push_back({i, "NVIDIA H200", 90, 132, kMemoryBytes, 1, 2});
    return all;
  }
  CudaLibraries libraries() const override { return {13010, 12080, 130203, "/pretended"}; }
  int current_device() const override { return current; }
  void set_device(int index) const override { current = index; }
  void synchronize() const override {}

  void* allocate(std::uint64_t bytes) const override {
    if (bytes > kMemoryBytes) return nullptr;
    void* memory = std::aligned_alloc(256, (bytes + 255) / 256 * 256);
    std::memset(memory, 0xAA, bytes);
    blocks().add(memory, {bytes, current});
    return memory;
  }
  void free(void* memory, int) const override {
    blocks().remove(memory);
    std::free(memory);
  }
  void copy_to_device(void* to, const void* from, std::uint64_t bytes) const override {
    blocks().require_here("what is copied to", to);
    std::memcpy(to, from, bytes);
  }
  void copy_to_host(void* to, const void* from, std::uint64_t bytes) const override {
    blocks().require_here("what is copied from", from);
    std::memcpy(to, from, bytes);
  }
  void fill(void* memory, std::byte value, std::uint64_t bytes) const override {
    blocks().require_here("what is filled", memory);
    std::memset(memory, static_cast<int>(value), bytes);
  }
  std::uint64_t device_used_bytes() const override { return blocks().bytes(); }

  void* make_stream() const override { return nullptr; }
  void destroy_stream(void*) const override {}
  void synchronize_stream(void*) const override {}
  void* make_event() const override { return nullptr; }
  void destroy_event(void*) const override {}
  void record(void*, void*) const override {}
  double seconds_between(void*, void*) const override { return 1.0; }
  void begin_capture(void*) const override {}
  void* end_capture(void*) const override { return nullptr; }
  void replay(void*, void*) const override {}
  void destroy_graph(void*) const override {}

  std::unique_ptr<CudaFloor> make_floor(const MatrixView&, const MatrixView&, bool) const override {
    throw Error(ErrorCode::kUnsupported, "pretend CUDA has no products");
  }
  RowPass measure_row_pass(std::int64_t tokens, std::int64_t vocab, Dtype, int) const override {
    return {static_cast<std::uint64_t>(6 * tokens * vocab), 1e-3, 2e-3, 1e12};
  }
  std::vector<TunedProduct> tune(std::int64_t, std::int64_t, std::int64_t, Dtype,
                                 int) const override {
    return {{"logits", 0, "128x128", "1x1", 20, 2, 2e-3},
            {"logits", 1, "128x256", "2x1", 21, 3, 1e-3},
            {"grad_hidden", 0, "128x256", "2x1", 21, 3, 3e-3}};
  }
  double relative_error(const MatrixView&, const MatrixView&) const override { return 0.0; }

 private:
  std::string refusal_;
  PretendBackend backend_;
};

}  // namespace
}  // namespace flce

extern "C" const flce::CudaLibrary* flce_cuda_library(const char* version) {
  static const flce::PretendLibrary instance;
  return std::strcmp(version, flce::version()) == 0 ? &instance : nullptr;
}
