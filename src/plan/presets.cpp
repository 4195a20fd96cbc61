// SPDX-License-Identifier: Apache-2.0
// Published model shapes (each model's config.json) for `flce plan --preset`. Data only; what
// follows from a shape is in step_memory.cpp.
#include <string>
#include <string_view>

#include "core/check.hpp"
#include "flce/advice.hpp"

namespace flce {
namespace {

struct Preset {
  std::string_view name;
  std::int64_t layers, hidden, heads, kv_heads, head_dim, intermediate, vocab;
  bool tied;
  bool gated_mlp = true;
  std::int64_t positions = 0;
  double softcap = 0.0;
};

constexpr Preset kPresets[] = {
    {"gemma2-2b", 26, 2304, 8, 4, 256, 9216, 256000, true, true, 0, 30.0},
    {"gemma2-9b", 42, 3584, 16, 8, 256, 14336, 256000, true, true, 0, 30.0},
    {"gemma3-1b", 26, 1152, 4, 1, 256, 6912, 262144, true},
    {"gpt2", 12, 768, 12, 12, 64, 3072, 50257, true, false, 1024},
    {"gpt2-xl", 48, 1600, 25, 25, 64, 6400, 50257, true, false, 1024},
    {"llama2-7b", 32, 4096, 32, 32, 128, 11008, 32000, false},
    {"llama3-8b", 32, 4096, 32, 8, 128, 14336, 128256, false},
    {"llama3-70b", 80, 8192, 64, 8, 128, 28672, 128256, false},
    {"llama3.2-1b", 16, 2048, 32, 8, 64, 8192, 128256, true},
    {"llama3.2-3b", 28, 3072, 24, 8, 128, 8192, 128256, true},
    {"mistral-7b", 32, 4096, 32, 8, 128, 14336, 32000, false},
    {"phi-3-mini", 32, 3072, 32, 32, 96, 8192, 32064, false},
    {"qwen2.5-0.5b", 24, 896, 14, 2, 64, 4864, 151936, true},
    {"qwen2.5-7b", 28, 3584, 28, 4, 128, 18944, 152064, false},
    {"qwen3-0.6b", 28, 1024, 16, 8, 128, 3072, 151936, true},
    {"qwen3-1.7b", 28, 2048, 16, 8, 128, 6144, 151936, true},
    {"qwen3-4b", 36, 2560, 32, 8, 128, 9728, 151936, true},
    {"qwen3-8b", 36, 4096, 32, 8, 128, 12288, 151936, false},
    {"qwen3-14b", 40, 5120, 40, 8, 128, 17408, 151936, false},
    {"qwen3-32b", 64, 5120, 64, 8, 128, 25600, 151936, false},
    {"smollm2-135m", 30, 576, 9, 3, 64, 1536, 49152, true},
    {"smollm2-1.7b", 24, 2048, 32, 32, 64, 8192, 49152, true},
    {"tinyllama-1.1b", 22, 2048, 32, 4, 64, 5632, 32000, false},
};

}  // namespace

ModelShape model_preset(std::string_view name) {
  for (const Preset& p : kPresets) {
    if (p.name != name) continue;
    return {.name = std::string(p.name),
            .layers = p.layers,
            .hidden = p.hidden,
            .heads = p.heads,
            .kv_heads = p.kv_heads,
            .head_dim = p.head_dim,
            .intermediate = p.intermediate,
            .vocab = p.vocab,
            .positions = p.positions,
            .tied = p.tied,
            .gated_mlp = p.gated_mlp,
            .softcap = p.softcap};
  }
  fail(ErrorCode::kInvalidArgument, "unknown model '{}'; known: {}", name, known_models());
}

std::string known_models() {
  std::string names;
  for (const Preset& p : kPresets) {
    names += names.empty() ? "" : ", ";
    names += p.name;
  }
  return names;
}

}  // namespace flce
