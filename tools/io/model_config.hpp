// SPDX-License-Identifier: Apache-2.0
// What a Hugging Face config.json says about a model's head: its sizes, and what happens to the
// logits on their way to the loss.
//
// A field is looked up in `text_config` first (models with several modalities nest it), then at the
// top level, under each spelling that model families use. null counts as missing. A field of the
// wrong type is refused by name, never skipped.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "flce/types.hpp"
#include "io/bytes.hpp"

namespace flce::io {

struct ModelConfig {
  std::int64_t hidden_size = 0;  // H
  std::int64_t vocab_size = 0;   // V
  std::optional<std::int64_t> num_hidden_layers;
  std::optional<std::int64_t> num_attention_heads;
  // Some models list one number per layer for the next three: kept only if all are the same.
  std::optional<std::int64_t> num_key_value_heads;
  std::optional<std::int64_t> head_dim;
  std::optional<std::int64_t> intermediate_size;
  std::optional<std::int64_t> max_position_embeddings;
  std::optional<bool> tie_word_embeddings;
  std::optional<double> final_logit_softcapping;  // Gemma 2; >= 0, 0 means no cap
  std::optional<double> logit_scale;              // Cohere: the logits are multiplied by it; > 0
  std::optional<double> logits_scaling;           // Granite: the logits are divided by it; > 0
  std::optional<Dtype> dtype;  // missing also for a type that FLCE does not compute with
  std::string dtype_name;      // as written: "bfloat16"; empty if missing
  std::string model_type;
  std::vector<std::string> architectures;

  // The factor of the logits that logit_scale and logits_scaling make together (Options::scale).
  double scale() const noexcept;
};

// Throws Error{kInvalidArgument} naming the file and the field. hidden_size and vocab_size must be
// there; sizes are whole numbers from 1 to 10^9.
ModelConfig parse_model_config(const Bytes& file);

// `path` is the file, or a model's folder that holds a config.json.
ModelConfig read_model_config(const std::string& path);

}  // namespace flce::io
