// SPDX-License-Identifier: Apache-2.0
// The memory of a training step from a model's shape, each term with its formula. The activations
// follow Korthikanti et al., "Reducing Activation Recomputation in Large Transformer Models" (2022,
// arXiv:2205.05198), adapted: attention that keeps no s*s matrix (flash attention: f32 log-sum-exp
// of a heads instead of 5*a*s/H), grouped key and value heads, a gated MLP, no dropout masks. With
// a*d = k*d = H, I = 4H and a plain MLP that is 32*H bytes a token and layer, the paper's 34 less
// two bytes of dropout masks. Must not know any loss method.
#include <algorithm>

#include "core/check.hpp"
#include "core/int_math.hpp"
#include "flce/advice.hpp"
#include "plan/bytes.hpp"

namespace flce {
namespace {

std::uint64_t times(std::uint64_t count, std::int64_t a, std::int64_t b = 1) {
  return saturating_mul(count, bytes_of(a, b, 1));
}

// Weights of one layer: query and output (H x a*d), key and value (H x k*d), MLP, two norms.
std::int64_t layer_parameters(const ModelShape& m) {
  const std::int64_t attention = 2 * m.hidden * m.head_dim * (m.heads + m.kv_heads);
  return attention + (m.gated_mlp ? 3 : 2) * m.hidden * m.intermediate + 2 * m.hidden;
}

// What one layer keeps of one token for its backward pass, in elements of the model's dtype:
//   inputs of two norms 2H, of the attention and of the MLP 2H; query and attention output 2*a*d;
//   key and value 2*k*d; MLP: gate, up, activated gate and their product (plain: up, activated up)
std::int64_t layer_elements(const ModelShape& m) {
  return 4 * m.hidden + 2 * m.head_dim * (m.heads + m.kv_heads) +
         (m.gated_mlp ? 4 : 2) * m.intermediate;
}

// Limits far above any model, and small enough that count_parameters cannot overflow.
void check(const ModelShape& m) {
  struct Size {
    const char* name;
    std::int64_t value, low, high;
  };
  const Size sizes[] = {
      {"layers", m.layers, 1, 10'000},     {"hidden", m.hidden, 1, 1'000'000},
      {"heads", m.heads, 1, 10'000},       {"kv_heads", m.kv_heads, 1, 10'000},
      {"head_dim", m.head_dim, 1, 10'000}, {"intermediate", m.intermediate, 1, 10'000'000},
      {"vocab", m.vocab, 1, 100'000'000},  {"positions", m.positions, 0, 100'000'000}};
  for (const Size& size : sizes) {
    require(size.value >= size.low && size.value <= size.high,
            "model '{}': {} is {}; it must lie between {} and {}", m.name, size.name, size.value,
            size.low, size.high);
  }
}

}  // namespace

ParameterCount count_parameters(const ModelShape& m) {
  check(m);
  ParameterCount count;
  count.parameters = (m.tied ? 1 : 2) * m.vocab * m.hidden + m.positions * m.hidden +
                     m.layers * layer_parameters(m) + m.hidden;
  count.formula = fmt::format("{}V*H + L*(2*H*d*(a+k) + {}*H*I + 2H){} + H", m.tied ? "" : "2*",
                              m.gated_mlp ? 3 : 2, m.positions > 0 ? " + positions*H" : "");
  return count;
}

StepMemory step_memory(const ModelShape& m, const Problem& problem, std::int64_t shards) {
  require(shards >= 1, "shards must be at least 1, given {}", shards);
  const std::int64_t parameters = count_parameters(m).parameters;
  const std::int64_t held = ceil_div(parameters, shards);
  const std::int64_t element = size_of(problem.dtype);
  const std::int64_t gradient = size_of(grad_weight_dtype_of(problem));
  const std::int64_t n = problem.tokens;
  const bool is_16bit = element == 2;
  const std::int64_t states = is_16bit ? 12 : 2 * std::max<std::int64_t>(element, 4);
  const std::string share = shards > 1 ? fmt::format(" / {} shards", shards) : "";
  const std::string p = fmt::format("P{} = {:.4g}", share, static_cast<double>(held));

  StepMemory step;
  step.weights = {"weights", fmt::format("{} bytes * {}", element, p), times(held, element)};
  step.gradients = {"gradients", fmt::format("{} bytes * {}", gradient, p), times(held, gradient)};
  step.optimizer = {"optimizer",
                    is_16bit ? fmt::format("(4 + 4 + 4 master) bytes * {}", p)
                             : fmt::format("({0} + {0}) bytes * {1}", states / 2, p),
                    times(held, states)};
  step.hidden = {"last hidden", fmt::format("2 * {} bytes * N*H, with its gradient", element),
                 bytes_of(n, m.hidden, 2 * element)};
  const std::uint64_t token_layer =
      saturating_add(times(layer_elements(m), element), times(m.heads, 4));
  const std::string layer =
      fmt::format("({} bytes * (4H + 2*d*(a+k) + {}*I) + 4a)", element, m.gated_mlp ? 4 : 2);
  step.activations = {"activations", fmt::format("N*L*{}", layer), times(token_layer, n, m.layers)};
  step.checkpoints = {"checkpoints", fmt::format("{} bytes * N*L*H", element),
                      times(bytes_of(n, m.hidden, element), m.layers)};
  step.recomputed_layer = {"recomputed layer", fmt::format("N*{}", layer), times(token_layer, n)};
  return step;
}

std::uint64_t StepMemory::without_loss(bool checkpointing) const {
  const std::uint64_t states =
      saturating_add(saturating_add(weights.bytes, gradients.bytes), optimizer.bytes);
  return saturating_add(saturating_add(states, hidden.bytes),
                        checkpointing ? checkpoints.bytes : activations.bytes);
}

std::uint64_t StepMemory::total(std::uint64_t loss_extra_bytes, bool checkpointing) const {
  const std::uint64_t peak =
      checkpointing ? std::max(loss_extra_bytes, recomputed_layer.bytes) : loss_extra_bytes;
  return saturating_add(without_loss(checkpointing), peak);
}

}  // namespace flce
