// SPDX-License-Identifier: Apache-2.0
// Whether fusing pays, and what to look at on an out-of-memory error: a training step's memory from
// a model's shape, and a verdict from a plan's report. Pure: calls no device, reads no file.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "flce/plan.hpp"
#include "flce/types.hpp"

namespace flce {

enum class Mode : std::int32_t { kTrain = 0, kInfer };

// The sizes of a decoder-only transformer that its memory follows from.
struct ModelShape {
  std::string name;
  std::int64_t layers = 0;        // L
  std::int64_t hidden = 0;        // H
  std::int64_t heads = 0;         // a
  std::int64_t kv_heads = 0;      // k; equals heads without grouped queries
  std::int64_t head_dim = 0;      // d
  std::int64_t intermediate = 0;  // I, of the MLP
  std::int64_t vocab = 0;         // V
  std::int64_t positions = 0;     // learned position embeddings; 0: none (rotary)
  bool tied = false;              // embedding and head share one weight
  bool gated_mlp = true;          // gate, up and down (SwiGLU); false: up and down only
  double softcap = 0.0;           // of the final logits; 0: none

  bool operator==(const ModelShape&) const = default;
};

// Published shapes by name: "qwen3-8b", "llama3-8b", "gemma2-2b", "gpt2", ...
// Throws Error{kInvalidArgument} that lists the known names.
FLCE_API ModelShape model_preset(std::string_view name);
// The names that model_preset knows, separated by ", ".
FLCE_API std::string known_models();

// Embedding, layers, norms and head; biases are left out. `formula` is what is computed.
struct ParameterCount {
  std::int64_t parameters = 0;
  std::string formula;
};
FLCE_API ParameterCount count_parameters(const ModelShape& model);

struct MemoryTerm {
  std::string name;
  std::string formula;
  std::uint64_t bytes = 0;
};

// The memory of a training step of one device, but for what the loss method adds.
struct StepMemory {
  MemoryTerm weights;
  MemoryTerm gradients;
  MemoryTerm optimizer;    // AdamW: two moments in f32, and an f32 master copy of 16-bit weights
  MemoryTerm hidden;       // the last hidden states and their gradient
  MemoryTerm activations;  // kept by all layers, without checkpointing
  MemoryTerm checkpoints;  // with checkpointing: each layer's input
  MemoryTerm recomputed_layer;  // with checkpointing: one layer's activations, in its backward pass

  // The step without the loss method's extra_bytes.
  FLCE_API std::uint64_t without_loss(bool checkpointing) const;
  // The step's peak. With checkpointing a layer is recomputed after the loss's memory is free.
  FLCE_API std::uint64_t total(std::uint64_t loss_extra_bytes, bool checkpointing) const;
};
// tokens, dtype and grad_weight_dtype are the problem's. `shards` devices share weights, gradients
// and optimiser states (ZeRO-3, FSDP); the tokens are those of one device.
FLCE_API StepMemory step_memory(const ModelShape& model, const Problem& problem,
                                std::int64_t shards = 1);

struct AdviceRequest {
  Mode mode = Mode::kTrain;
  const ModelShape* model = nullptr;  // null: unknown
  bool checkpointing = false;         // activation checkpointing of every layer
  std::int64_t shards = 1;
  std::int64_t sequences = 1;  // of a batch; for Mode::kInfer
};

enum class Pays : std::int32_t { kFalse = 0, kTrue, kUnknown };
FLCE_API const char* name_of(Pays pays) noexcept;  // "no", "yes", "unknown"

struct Verdict {
  Pays pays = Pays::kUnknown;
  std::string reason;             // sentences for people, with the numbers
  Method method = Method::kAuto;  // the fused method that was compared with naive
  std::uint64_t saved_bytes = 0;  // naive's extra_bytes - that method's
  double saved_share = 0.0;       // of step_bytes
  std::uint64_t step_bytes = 0;  // the step with naive; without a model: head, its AdamW and logits
  // The same question to the code that most people run, which holds copies of the logits. Asked
  // with a model only; kUnknown without one.
  Pays eager_pays = Pays::kUnknown;
  std::uint64_t eager_saved_bytes = 0;  // of eager_step_bytes, by the same method
  double eager_saved_share = 0.0;
  std::uint64_t eager_step_bytes = 0;  // the step with naive-eager
};
// With a model: pays if fusing saves at least 10 % of the step's memory, or if the step fits into
// report.caps.memory_bytes with the fused method only. Without one: see src/plan/advice.cpp.
// `report` comes from plan_report.
FLCE_API Verdict judge(const Plan& report, const AdviceRequest& request = {});

// How a request is written: as words of a problem text, or as options of `flce plan`.
enum class Spelling : std::int32_t { kWords = 0, kOptions };
FLCE_API std::string spell_request(const PlanRequest& request, Spelling spelling);

// What to check on an out-of-memory error, in this order; six sentences with the numbers put in.
// Steps 4 and 5 name the offers below.
FLCE_API std::vector<std::string> oom_checklist(const Plan& report,
                                                const AdviceRequest& request = {},
                                                Spelling spelling = Spelling::kWords);

// The steps of the checklist that have offers.
inline constexpr int kFuseStep = 4;
inline constexpr int kBudgetStep = 5;

// A request that takes less than the plan at hand: `plan(report.problem, report.caps, request)`
// gives these figures.
struct Offer {
  int step = 0;  // of the checklist, which names it
  PlanRequest request;
  Method method = Method::kAuto;
  std::int64_t chunk = 0;
  std::int64_t gemm_calls = 0;
  std::uint64_t extra_bytes = 0;
  double seconds = 0.0;  // roofline estimate; 0: unknown
};
// Each takes less than the one before it, the last one the least that there is. Where nothing
// serves as asked (`report.method` is kAuto), what would serve.
FLCE_API std::vector<Offer> oom_offers(const Plan& report);

// What a chunk of the chosen method costs: memory against products and time.
struct ChunkCost {
  std::int64_t chunk = 0;
  std::int64_t num_chunks = 0;
  std::int64_t gemm_calls = 0;
  std::uint64_t extra_bytes = 0;    // may be more than the chosen chunk's: see `route`
  double seconds = 0.0;             // roofline estimate; 0: unknown
  double logits_over_hidden = 0.0;  // chunk * V / (N * H)
  bool is_liger = false;            // the chunk of the published rule
  Route route = Route::kAuto;       // the chunk's; kAuto: the device has no routes
};
// The chosen chunk first, then others, mostly smaller; empty where the method has no chunks.
FLCE_API std::vector<ChunkCost> chunk_costs(const Plan& report);

// Matrix products that a plan starts: one per chunk (or vocabulary slab) and gradient.
FLCE_API std::int64_t gemm_calls(const Plan& plan);

// The smallest budget that any method can work with, and how. method is kAuto if none can.
struct SmallestBudget {
  std::uint64_t bytes = 0;
  Method method = Method::kAuto;
  std::int64_t chunk = 0;
};
// Of `request` only the route and allow_tf32 count.
FLCE_API SmallestBudget smallest_budget(const Problem& problem, const DeviceCaps& caps,
                                        const PlanRequest& request = {});

}  // namespace flce
