// SPDX-License-Identifier: Apache-2.0
// FLCE: cross-entropy of hidden @ weight^T without ever holding the N x V logits.
//
//   flce::Inputs in;   in.hidden = ...; in.weight = ...; in.target = ...;
//   flce::Outputs out; out.loss = ...; out.grad_hidden = ...; out.grad_weight = ...;
//   flce::Plan plan = flce::plan(flce::problem_of(in, out, options), flce::cpu_caps());
//   flce::Workspace workspace(plan.workspace_bytes);
//   flce::run(plan, in, out, workspace.span());
//
// The caller owns all memory. `run`, `forward` and `backward` allocate nothing and keep nothing.
//
// Every function may be called from several threads at once; plans and inputs may be shared, what a
// call writes (outputs, workspace, saved) is that call's alone. There is one pool of worker threads
// in the process: of several calls on the CPU one gets it, the others work on their own thread
// meanwhile, and so does a call made by a worker; the results are the same bits. A child of fork()
// may call, and starts workers of its own. The environment (FLCE_NUM_THREADS, FLCE_ISA) is read
// once. docs/kernels/cpu.md says more.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>

#include "flce/error.hpp"
#include "flce/plan.hpp"
#include "flce/problem.hpp"
#include "flce/types.hpp"

namespace flce {

struct Inputs {
  MatrixView hidden;        // (N, H) f32, bf16, f16 or f64
  MatrixView weight;        // (V, H) of hidden's dtype
  VectorView target;        // (N) i64 or i32
  VectorView bias;          // (V) optional; hidden's dtype or f32
  VectorView class_weight;  // (V) optional; the same dtypes as bias, also for those below
  VectorView token_weight;  // (N) optional, by hidden row (not shifted)
  // (N) optional, each > 0 where there is a target. The CPU looks, and throws before it writes
  // anything; a card does not: another number there makes no sense of that token's results.
  VectorView temperature;
  VectorView normalizer;    // (1) optional, f64, f32, i64 or i32, read when the loss is made
  VectorView grad_output;   // optional upstream: (1), or (N) with Reduction::kNone
  VectorView grad_entropy;  // (N) optional upstream of the entropy
};

// Every output is optional but the loss. Per-token outputs are f32 (f64 for f64 problems) and are 0
// at ignored tokens.
struct Outputs {
  VectorView loss;  // (N) for Reduction::kNone, else (1)
  VectorView lse;
  VectorView logprob;
  VectorView entropy;
  VectorView z_loss;        // shaped as loss
  VectorView argmax;        // (N) i64
  VectorView num_correct;   // (1) i64
  VectorView num_valid;     // (1) i64
  MatrixView topk_logprob;  // (N, k)
  MatrixView topk_index;    // (N, k) i64
  MatrixView grad_hidden;   // (N, H) of hidden's dtype
  MatrixView grad_weight;   // (V, H) of weight's dtype or f32
  VectorView grad_bias;     // (V) of bias's dtype or f32
};

// What a run really used, for tests and benchmarks.
struct RunReport {
  std::uint64_t workspace_high_water = 0;  // bytes of the workspace from its start
  std::uint64_t saved_high_water = 0;
};

// How a call is carried out; changes no result.
struct RunOptions {
  // CUDA: the cudaStream_t that all work goes to; null is the device's default stream. The call
  // returns when the work has been given to it, allocates nothing, waits for nothing and can be
  // recorded into a CUDA graph. The first call of a shape in a process may load code and look up
  // products: make it before recording. The CPU has no streams and works before it returns.
  void* stream = nullptr;
  // CUDA: waits for the stream and throws Error{kTargetOutOfRange} as the CPU does, but after the
  // work, not before it. Otherwise a target out of range makes that token's loss NaN and its
  // gradients 0, and counts as ignored in the divisor. FLCE_CHECK=1 in the environment does the
  // same for every call. The CPU always checks first.
  bool check_targets = false;
  RunReport* report = nullptr;
};

// The problem that these views and options pose: sizes, dtypes and wants are read off the views.
// Throws Error{kInvalidArgument} naming the view or the option that does not fit. The views need no
// data yet.
FLCE_API Problem problem_of(const Inputs& inputs, const Outputs& outputs, const Options& options,
                            bool accumulate_grad_weight = false, bool accumulate_grad_bias = false,
                            Pass pass = Pass::kRun);

// Loss and gradients in one call. `workspace` needs plan.workspace_bytes bytes aligned to 64.
// Outputs must not overlap inputs, each other or the workspace. On an error nothing is written
// (targets are checked first), except that NaN and Inf in the data are not errors.
FLCE_API void run(const Plan& plan, const Inputs& inputs, const Outputs& outputs,
                  std::span<std::byte> workspace, const RunOptions& options = {});

// The same in two calls, for a plan with Pass::kForwardBackward. `saved` needs plan.saved_bytes
// bytes aligned to 64, and must come to `backward` as `forward` left it; `backward` leaves it so,
// and may be called again. `fused` makes the gradients in `forward` (for an upstream of 1), so they
// must be among its outputs; `backward` then multiplies them by the scalar inputs.grad_output.
FLCE_API void forward(const Plan& plan, const Inputs& inputs, const Outputs& outputs,
                      std::span<std::byte> workspace, std::span<std::byte> saved,
                      const RunOptions& options = {});
FLCE_API void backward(const Plan& plan, const Inputs& inputs, const Outputs& outputs,
                       std::span<std::byte> workspace, std::span<std::byte> saved,
                       const RunOptions& options = {});

// grad *= upstream[0] for each given gradient; no pass over the memory when upstream[0] is 1. All
// of it lies on `device`.
FLCE_API void scale_grads(const VectorView& upstream, const MatrixView& grad_hidden,
                          const MatrixView& grad_weight, const VectorView& grad_bias,
                          DeviceKind device = DeviceKind::kCpu, void* stream = nullptr);

// Memory aligned for `run`, zero, on 2 MiB pages where the system gives them. Keep it for the next
// call: the first touch of fresh pages costs time.
class FLCE_API Workspace {
 public:
  explicit Workspace(std::uint64_t bytes);
  ~Workspace();
  Workspace(Workspace&& other) noexcept;
  Workspace& operator=(Workspace&& other) noexcept;
  Workspace(const Workspace&) = delete;
  Workspace& operator=(const Workspace&) = delete;
  std::span<std::byte> span() noexcept { return {data_, size_}; }

 private:
  std::byte* data_ = nullptr;
  std::size_t size_ = 0;
};

// One text for a problem everywhere: "n37_h65_v129 bf16 mean label_smoothing=0.1 method=fused".
// docs/problem-text.md lists the words. Throws Error{kInvalidArgument} naming the word that is
// unknown and the known ones.
struct ProblemText {
  Problem problem;
  PlanRequest request;
};
FLCE_API ProblemText parse_problem(std::string_view text);
FLCE_API std::string format_problem(const Problem& problem, const PlanRequest& request = {});

FLCE_API const char* version() noexcept;  // of the library: "MAJOR.MINOR.PATCH"
// The instruction set that the CPU backend chose: "portable", "avx2", "avx512", "avx512bf16".
FLCE_API const char* cpu_isa() noexcept;

}  // namespace flce
