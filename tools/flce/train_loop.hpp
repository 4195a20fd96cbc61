// SPDX-License-Identifier: Apache-2.0
// The training loop: batches from random positions of a text, one loss step of the library, AdamW.
// Used by `flce train` for one method and by its demo for each of them.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "train_loss.hpp"
#include "train_model.hpp"
#include "train_random.hpp"
#include "train_text.hpp"

namespace flce::cli {

struct TrainSettings {
  ModelShape shape;  // its vocabulary is the text's
  LossSettings loss;
  AdamW optimizer;
  std::int64_t steps = 200;
  std::int64_t batch = 1024;
  std::int64_t warmup = 20;
  std::int64_t eval_every = 50;  // 0: before and after only
  double learning_rate = 1e-2;
  int num_threads = 1;  // of the trunk and the optimizer, on the CPU
  std::uint64_t seed = 1;
};

struct TrainPoint {
  std::int64_t step = 0;
  double train_loss = 0.0;  // of the last batch; 0 before the first
  double valid_loss = 0.0;
  double seconds_per_step = 0.0;  // since the last point
};

class Trainer {
 public:
  // `corpus` must outlive the trainer. Throws Error{kInvalidArgument} if the text is too short.
  Trainer(const Corpus& corpus, const TrainSettings& settings);

  // What the loss step's device comes to hold for one step, workspace included; call before
  // `train`.
  std::uint64_t measure_growth();
  // Calls `on_point` before the first step, every `eval_every` steps, and after the last;
  // `on_step` after every step.
  void train(const std::function<void(const TrainPoint&)>& on_point,
             const std::function<void(std::int64_t)>& on_step);
  double validation_loss();

  Model& model() noexcept { return model_; }
  const LossStep& loss_step() const noexcept { return loss_step_; }
  double first_loss() const noexcept { return first_loss_; }
  double last_loss() const noexcept { return last_loss_; }
  double loss_seconds() const noexcept { return loss_seconds_; }  // of all training steps
  double median_loss_seconds() const;
  std::int64_t valid_tokens() const noexcept { return valid_tokens_; }
  std::int64_t num_parameters();

  // Weights as safetensors, the vocabulary in its metadata (JSON text under "vocab").
  void save(const std::string& path);

  // A text needs this many tokens for a training and a validation part.
  static std::int64_t min_tokens(std::int64_t context);

 private:
  void draw_batch();
  void fill_batch(const std::vector<std::int64_t>& positions);
  double one_step(std::int64_t step);
  double learning_rate_at(std::int64_t step) const;

  const Corpus& corpus_;
  TrainSettings settings_;
  Model model_;
  LossStep loss_step_;
  std::int64_t train_end_ = 0;  // tokens before it are for training, the others for validation
  std::int64_t valid_tokens_ = 0;
  Random random_;
  std::vector<std::int32_t> contexts_;
  std::vector<std::int64_t> target_;
  std::vector<float> hidden_;
  std::vector<float> grad_hidden_;
  std::vector<double> step_seconds_;
  double first_loss_ = 0.0;
  double last_loss_ = 0.0;
  double loss_seconds_ = 0.0;
};

}  // namespace flce::cli
