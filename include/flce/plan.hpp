// SPDX-License-Identifier: Apache-2.0
// How it will be done: `plan` is a pure function of what is asked, what the device can do and how
// many bytes may be used. It calls no device, reads no clock and no environment variable.
#pragma once

#include <array>
#include <cstdint>
#include <string>

#include "flce/problem.hpp"
#include "flce/types.hpp"

namespace flce {

// What the planner may know of a device. Figures are for the roofline estimate and the memory
// check; a 0 in `memory_bytes` means "unknown, do not check".
struct DeviceCaps {
  DeviceKind kind = DeviceKind::kCpu;
  std::array<char, 32> name{};     // zero-terminated, for people
  std::uint64_t memory_bytes = 0;  // of the whole device
  std::int32_t num_threads = 1;    // CPU: worker threads that run will use
  double matmul_flops = 0.0;       // per second, sustained, for the problem's dtype; 0: unknown
  double bandwidth_bytes = 0.0;    // per second; 0: unknown

  bool operator==(const DeviceCaps&) const = default;
};

// kMeasured: the chunk that measured best on the kind of device. kLiger: the published rule,
// inc = ceil(V / H), chunk = next_pow2(ceil(N / inc)).
enum class ChunkPolicy : std::int32_t { kMeasured = 0, kLiger };

// How a CUDA card computes. kPortable: products by cuBLASLt and one kernel over the logits between
// them, on any card from compute capability 8.0 on. kHopper: the odds form on compute capability
// 9.0: exponentials instead of logits, three products by our own kernels.
enum class Route : std::int32_t { kAuto = 0, kPortable, kHopper };
FLCE_API const char* name_of(Route route) noexcept;
FLCE_API Route route_of(std::string_view name);

// Whether a method goes through the tokens in chunks: all but naive and naive-eager, which take
// them at once. True for kAuto.
FLCE_API bool has_chunks(Method method) noexcept;

struct PlanRequest {
  Method method = Method::kAuto;
  // Token rows, of methods that have chunks; 0: chosen by the policy. Larger than N means N.
  std::int64_t chunk = 0;
  std::uint64_t budget_bytes = 0;  // hard limit of extra_bytes; 0: none
  ChunkPolicy policy = ChunkPolicy::kMeasured;
  Route route = Route::kAuto;  // CUDA only
  bool allow_tf32 = false;     // CUDA, f32: products of operands rounded to 10 bits of mantissa

  bool operator==(const PlanRequest&) const = default;
};

// The pieces of memory that a method books. One function books them for planning and for running,
// so predicted and used bytes are the same number.
enum class Slot : std::int32_t {
  kRowState = 0,   // per token: maximum and sums of its softmax, its loss
  kCoefficients,   // per token: what its logit gradient is made with
  kReduction,      // divisor and the sums of the reduced loss
  kKept,           // logits or exponentials that the gradients are made from
  kTileMax,        // per (token, vocabulary tile): maximum, which exponentials are relative to
  kTileStats,      // likewise: sums
  kHiddenPacked,   // hidden rows of a chunk, packed for the logits product
  kHiddenByToken,  // the same rows, packed for grad_weight, whose sum runs over tokens
  kGradHiddenAcc,  // grad_hidden's accumulator, or the low halves of a split one
  kGradWeightAcc,  // grad_weight's accumulator, or the low halves of a split one
  kGradBiasAcc,    // grad_bias in f64
  kBias,           // bias and class weights in the accumulation type
  kClassWeight,
  kGradientPacked,  // a block of the logit gradient, packed
  kWeightPacked,    // a block of the weight, packed
  kTopk,            // candidates of the top-k
  kThreadScratch,   // tiles of the worker threads
  kGemmScratch,     // CUDA: what cuBLASLt may use
  kTokenRows,       // route hopper: numbers of a chunk's tokens (offsets, scales)
  kTargetSums,      // route hopper: halves of grad_weight's rows that wait for targets' terms
  kSmoothing,       // route hopper: sums over the vocabulary and over tokens for label smoothing
  kHiddenParts,     // route hopper: sums of grad_hidden's tiles that are made in parts
  kNumSlots,
};
inline constexpr int kNumSlots = static_cast<int>(Slot::kNumSlots);
FLCE_API const char* name_of(Slot slot) noexcept;

struct SlotPlace {
  std::uint64_t offset = 0;
  std::uint64_t bytes = 0;
  bool saved = false;  // lives from the forward to the backward call, in the `saved` buffer

  bool operator==(const SlotPlace&) const = default;
};

// What one method would need for the problem, or why it cannot serve it.
struct MethodReport {
  Method method = Method::kAuto;
  std::int32_t gemms = 0;  // products of 2*N*H*V flops
  std::int64_t chunk = 0;  // token rows of a chunk
  std::int64_t num_chunks = 0;
  std::uint64_t workspace_bytes = 0;
  std::uint64_t saved_bytes = 0;
  std::uint64_t extra_bytes = 0;    // workspace_bytes + saved_bytes
  std::uint64_t peak_bytes = 0;     // inputs + outputs + extra_bytes
  double seconds = 0.0;             // roofline estimate; 0 where the device's figures are unknown
  std::array<char, 320> refusal{};  // empty: serves; else a sentence that names what would work
  bool planned_only = false;        // `run` refuses it: an eager variant with options
  Route route = Route::kAuto;       // kAuto: the device has no routes, or the method refuses
  // Why it is not kHopper, where the card could and the choice was the planner's.
  std::array<char, 160> route_reason{};

  bool refused() const noexcept { return refusal[0] != '\0'; }
  bool operator==(const MethodReport&) const = default;
};

// The decision. A plain value: copy it, compare it, keep it; `run` uses it as often as wanted.
struct Plan {
  Problem problem;
  DeviceCaps caps;
  PlanRequest request;

  Method method = Method::kAuto;
  std::int64_t chunk = 0;  // token rows of a chunk, 1 <= chunk <= max(N, 1)
  std::int64_t slab = 0;   // vocabulary rows that the backward handles at once
  std::int64_t num_chunks = 0;
  Route route = Route::kAuto;  // the method's; kAuto: the device has no routes
  std::array<SlotPlace, kNumSlots> slots{};

  std::uint64_t input_bytes = 0;      // hidden, weight, target, bias, weights, upstream
  std::uint64_t output_bytes = 0;     // loss, gradients and the outputs asked for
  std::uint64_t workspace_bytes = 0;  // free to reuse between two calls
  std::uint64_t saved_bytes = 0;      // must survive from forward to backward (0 for Pass::kRun)
  std::uint64_t extra_bytes = 0;
  std::uint64_t peak_bytes = 0;
  double seconds = 0.0;

  std::array<MethodReport, kNumMethods - 1> methods{};  // in the order of enum Method

  bool operator==(const Plan&) const = default;
};

// Chooses method and chunk. Throws Error: kInvalidArgument for a problem that makes no sense,
// kUnsupported when the asked-for method refuses (with its reason), kOutOfBudget when nothing fits.
FLCE_API Plan plan(const Problem& problem, const DeviceCaps& caps, const PlanRequest& request = {});

// Which of cuBLASLt's candidates the plan's products take, as tiles and clusters, or its first one
// where none was measured to be better; empty for devices without routes. `flce tune` measures
// them.
FLCE_API std::string describe_products(const Plan& plan);

// As plan, but for a table of what each method would need: refusals, also of the requested method
// and of the budget, stand in `methods`, and Plan::method is kAuto when nothing serves.
FLCE_API Plan plan_report(const Problem& problem, const DeviceCaps& caps,
                          const PlanRequest& request = {});

// The machine's processor, with the number of threads that run will use. Reads FLCE_NUM_THREADS,
// the process's affinity and its cgroup quota once.
FLCE_API DeviceCaps cpu_caps();

// A card by name, also one that is not at hand: "a100-80", "h100-80", "h200", "b200", "rtx4090",
// ... Throws Error{kInvalidArgument} that lists the known names.
FLCE_API DeviceCaps caps_of(const std::string& name);
// The names that caps_of knows, separated by ", ".
FLCE_API std::string known_caps();

// The published rule as numbers: what `policy=liger` balances.
struct ChunkRule {
  std::int64_t inc = 0;             // ceil(V / H)
  std::int64_t chunk = 0;           // next_pow2(ceil(N / inc)), at most N
  std::int64_t chunks = 0;          // ceil(N / chunk)
  double logits_over_hidden = 0.0;  // chunk*V / (N*H), about 1
};
FLCE_API ChunkRule liger_rule(std::int64_t tokens, std::int64_t hidden, std::int64_t vocab);

// The largest N for which `method` fits into `caps.memory_bytes` (inputs, outputs and extra), other
// fields of `problem` as they are; 0 if not even one token fits.
FLCE_API std::int64_t largest_tokens(Problem problem, const DeviceCaps& caps,
                                     const PlanRequest& request);

// "2GiB", "500MB", "1.5GB", "123456": powers of 1024 with i, of 1000 without.
FLCE_API std::uint64_t parse_bytes(std::string_view text);
FLCE_API std::string format_bytes(std::uint64_t bytes);

}  // namespace flce
