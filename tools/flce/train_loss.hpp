// SPDX-License-Identifier: Apache-2.0
// The loss step of `flce train`: hidden states and head in f32 on one side, flce::plan and
// flce::run on the other. With 16-bit types the operands are rounded copies of the f32 ones, and
// the head's gradient stays f32, as mixed-precision trainers keep it.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "flce/flce.hpp"
#include "io/tensor.hpp"
#include "run_step.hpp"
#include "train_model.hpp"

namespace flce::cli {

struct LossSettings {
  Dtype dtype = Dtype::kF32;
  DeviceCaps caps;
  PlanRequest request;
};

// One mean loss over a fixed number of tokens.
class LossStep {
 public:
  LossStep(const ModelShape& shape, std::int64_t tokens, const LossSettings& settings,
           bool with_gradients);

  // Books the workspace; the first `run` does it otherwise. Apart from the constructor so that its
  // memory can be measured alone.
  void prepare();
  // The loss. With gradients, also grad_hidden and the gradients of the model's head.
  double run(const std::vector<float>& hidden, const std::vector<std::int64_t>& target,
             Model& model, std::vector<float>& grad_hidden);

  const Plan& plan() const noexcept { return plan_; }
  std::uint64_t used_bytes() const noexcept { return step_ ? step_->used_bytes() : 0; }
  // Of the library alone, without the copies.
  double last_seconds() const noexcept { return step_ ? step_->seconds() : 0.0; }

 private:
  bool is_narrow() const noexcept { return plan_.problem.dtype != Dtype::kF32; }
  Inputs inputs_of(const std::vector<float>& hidden, const std::vector<std::int64_t>& target,
                   Model& model);
  Outputs outputs_of(Model& model, std::vector<float>& grad_hidden);

  Plan plan_;
  std::unique_ptr<Step> step_;
  std::unique_ptr<io::Tensor> hidden_;  // rounded copies; null for f32
  std::unique_ptr<io::Tensor> weight_;
  std::unique_ptr<io::Tensor> grad_hidden_;
  float loss_ = 0.0F;
};

}  // namespace flce::cli
