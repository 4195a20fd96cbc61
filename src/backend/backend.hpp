// SPDX-License-Identifier: Apache-2.0
// The verbs: what a device must be able to do, and nothing of how. Methods (src/methods) order
// verbs; backends (src/cpu, src/cuda) carry them out. A verb starts device work on the step's
// memory; it neither allocates nor waits for a device.
//
// The core has two phases, so that a head split over ranks needs no second algorithm:
//   partial   hidden rows of a token range against vocabulary rows -> statistics per token
//   combine   the statistics of all shards, in shard order -> log-sum-exp, loss, coefficients
//   grads     the gradient products, from logits or exponentials that `partial` kept
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

#include "core/ledger.hpp"
#include "core/ranges.hpp"
#include "flce/flce.hpp"

namespace flce {

// How a method cuts the work; the planner chooses it.
struct Tiling {
  Method method = Method::kAuto;
  std::int64_t chunk = 1;  // tokens
  std::int64_t slab = 1;   // vocabulary rows of one backward step
  Route route = Route::kAuto;
};

// How the device computes a method, and why not by a faster route: empty where there is none, or
// where the request left no choice that the reason would explain.
struct RouteChoice {
  Route route = Route::kAuto;
  std::array<char, 160> reason{};
};

// What `partial` leaves in Slot::kKept.
enum class Keep {
  kNothing,
  kLogits,        // the accumulation type, before softcap and temperature
  kExponentials,  // relative to the tile's maximum, the target's entry left out
};

// What a method keeps for this problem, and for how many tokens and vocabulary rows at once.
struct Kept {
  Keep what = Keep::kNothing;
  std::int64_t tokens = 0;
  std::int64_t vocab = 0;
  bool for_backward = false;  // must survive until the backward call
};

// Everything a verb may look at. POD; built once per call by src/api.
struct Step {
  const Plan* plan = nullptr;
  const Inputs* inputs = nullptr;
  const Outputs* outputs = nullptr;
  std::byte* workspace = nullptr;
  std::byte* saved = nullptr;
  RunReport* report = nullptr;
  void* stream = nullptr;      // of a device that has streams
  Kept kept;                   // what this plan's method keeps
  bool unit_upstream = false;  // make gradients for an upstream of 1 (`fused` before backward)
  bool is_backward = false;    // a backward call, whose forward call saved what it needs

  const Problem& problem() const { return plan->problem; }
};

// The place of a piece of work in a sum over pieces: the first one writes (or adds to what the
// caller wants accumulated), the last one rounds to the output's type.
struct Turn {
  bool first = true;
  bool last = true;
};

class Backend {
 public:
  Backend() = default;
  Backend(const Backend&) = delete;
  Backend& operator=(const Backend&) = delete;
  virtual ~Backend() = default;

  virtual DeviceKind kind() const = 0;

  // The route of a method; the one that was asked for where it serves. Pure: used by the planner.
  virtual RouteChoice route(const Problem&, const DeviceCaps&, const PlanRequest&, Method) const {
    return {};
  }
  // Books every slot that `run` will look up for this tiling. Pure: used by the planner.
  virtual void book(const Problem& problem, const DeviceCaps& caps, const Tiling& tiling,
                    const Kept& kept, Ledger& ledger) const = 0;
  // The chunk that measured best for this method, and the slab of `recompute`; both before budget
  // and N are considered. Pure.
  virtual Tiling preferred_tiling(const Problem& problem, const DeviceCaps& caps, Method method,
                                  Route route) const = 0;

  // Around all verbs of a call: makes the device of the step's memory the current one (and checks
  // that all of the memory is there), and restores it. `begin` returns what `end` takes.
  virtual int begin(const Step&) const { return 0; }
  virtual void end(int) const noexcept {}
  // After a call: waits, and throws Error{kTargetOutOfRange} if a target was out of range. Only for
  // devices that cannot look at the targets first.
  virtual void check_targets(const Step&) const {}

  // Puts small inputs (bias, class weights) into the workspace in the form that the other verbs
  // read. First verb of every call.
  virtual void prepare(const Step& step) const = 0;
  // Checks every target (Error{kTargetOutOfRange} before anything is written), counts valid tokens
  // and sums their class weights -> Slot::kReduction.
  virtual void scan_targets(const Step& step) const = 0;
  // Statistics of hidden[tokens] . weight^T into Slot::kRowState; with `keep`, logits or
  // exponentials into Slot::kKept from row `kept_row` on.
  virtual void partial(const Step& step, Range tokens, Keep keep, std::int64_t kept_row) const = 0;
  // Logits of hidden[tokens] . weight[vocab]^T into Slot::kKept from row 0, without statistics, for
  // methods that know the log-sum-exp already.
  virtual void logits(const Step& step, Range tokens, Range vocab) const = 0;
  // The statistics of a shard on their way to the other ranks: `stats_bytes` bytes a token.
  virtual std::int64_t stats_bytes() const = 0;
  virtual void export_stats(const Step& step, Range tokens, std::byte* to) const = 0;
  // Replaces this rank's statistics by the sum over `num_shards` shards, in shard order: the same
  // bits on every rank.
  virtual void merge_stats(const Step& step, Range tokens, const std::byte* gathered,
                           int num_shards) const = 0;
  // Statistics of the whole head -> per-token results and coefficients of the logit gradient.
  virtual void combine(const Step& step, Range tokens) const = 0;
  // Coefficients of the logit gradient for the upstream of this call (after `combine`, perhaps in
  // an earlier call).
  virtual void coefficients(const Step& step, Range tokens) const = 0;
  // partial, combine and coefficients of a whole head's chunk at once, for a backend that can do
  // with fewer passes over the logits then. What it leaves in Slot::kKept from row 0 on is only for
  // grad_hidden and grad_weight.
  virtual void fused_chunk(const Step& step, Range tokens, Keep keep) const {
    partial(step, tokens, keep, 0);
    combine(step, tokens);
    coefficients(step, tokens);
  }
  // The reduced loss and the counts.
  virtual void reduce_loss(const Step& step) const = 0;
  // grad_hidden[tokens] (+)= gradient[tokens, vocab] . weight[vocab]; the sum runs over vocabulary.
  virtual void grad_hidden(const Step& step, Range tokens, Range vocab, std::int64_t kept_row,
                           Turn turn) const = 0;
  // grad_weight[vocab] (+)= gradient[tokens, vocab]^T . hidden[tokens], and grad_bias[vocab]; the
  // sum runs over tokens.
  virtual void grad_weight(const Step& step, Range tokens, Range vocab, std::int64_t kept_row,
                           Turn turn) const = 0;
  // The whole of an eager variant, a baseline: the tensors of backend/eager.hpp, each one written.
  virtual void run_eager(const Step& step) const = 0;
  // What it keeps of each token beside those tensors, in Slot::kRowState. Pure.
  virtual std::uint64_t eager_state_bytes(const Problem&) const { return 0; }
  // What the products of `chunk` tokens need beside those tensors. Pure.
  virtual std::uint64_t eager_scratch_bytes(const Problem& problem, const DeviceCaps& caps,
                                            std::int64_t chunk) const = 0;
  // grad *= upstream[0], nothing where it is 1.
  virtual void scale_grads(const VectorView& upstream, const MatrixView& grad_hidden,
                           const MatrixView& grad_weight, const VectorView& grad_bias,
                           void* stream) const = 0;
};

}  // namespace flce
