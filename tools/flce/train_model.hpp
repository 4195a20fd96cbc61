// SPDX-License-Identifier: Apache-2.0
// The language model of `flce train`: the embeddings of the last k tokens, joined, go through one
// linear layer and a GELU; the result is `hidden` (N, H), which the head (V, H) turns into logits.
//   hidden = gelu(concat(embed[context]) . linear^T + linear_bias)
// Forward and backward of the trunk are written out; the head's part is the library's business.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace flce::cli {

struct ModelShape {
  std::int64_t vocab = 0;
  std::int64_t context = 8;  // tokens that the model sees
  std::int64_t embed = 32;
  std::int64_t hidden = 128;
};

struct Parameter {
  std::string name;
  std::int64_t rows = 0;
  std::int64_t cols = 0;
  bool is_matrix = false;  // matrices get weight decay, vectors do not
  std::vector<float> value{};
  std::vector<float> grad{};
  std::vector<float> mean{};  // AdamW's moments
  std::vector<float> square{};
};

class Model {
 public:
  // Random weights; the same seed gives the same bits.
  Model(const ModelShape& shape, std::uint64_t seed, int num_threads);

  // hidden (tokens, H) from contexts (tokens, context). Keeps what `backward` needs.
  void forward(const std::vector<std::int32_t>& contexts, std::vector<float>& hidden);
  // Writes the gradients of all parameters but the head's, for the last `forward`.
  void backward(const std::vector<float>& grad_hidden);

  const ModelShape& shape() const { return shape_; }
  Parameter& head() { return head_; }
  Parameter& head_bias() { return head_bias_; }
  std::vector<Parameter*> parameters();

 private:
  void gather();
  void scatter();

  ModelShape shape_;
  int num_threads_;
  Parameter embed_;
  Parameter linear_;
  Parameter linear_bias_;
  Parameter head_;
  Parameter head_bias_;
  std::vector<std::int32_t> contexts_;  // of the last forward
  std::vector<float> joined_;           // (tokens, context * embed)
  std::vector<float> before_;           // (tokens, H) before the GELU, then its gradient
  std::vector<float> joined_grad_;
};

struct AdamW {
  double beta1 = 0.9;
  double beta2 = 0.98;
  double epsilon = 1e-8;
  double weight_decay = 0.01;
};

// One update of value, mean and square from grad; `step` counts from 1.
void adamw_update(Parameter& parameter, const AdamW& settings, double learning_rate,
                  std::int64_t step, int num_threads);

}  // namespace flce::cli
