// SPDX-License-Identifier: Apache-2.0
#include "train_loss.hpp"

#include "verify_numbers.hpp"

namespace flce::cli {
namespace {

Problem problem_of_head(const ModelShape& shape, std::int64_t tokens, Dtype dtype,
                        bool with_gradients) {
  Problem problem;
  problem.tokens = tokens;
  problem.hidden = shape.hidden;
  problem.vocab = shape.vocab;
  problem.dtype = dtype;
  problem.bias_dtype = Dtype::kF32;
  problem.wants.grad_hidden = with_gradients;
  problem.wants.grad_weight = with_gradients;
  problem.wants.grad_bias = with_gradients;
  problem.grad_weight_dtype = Dtype::kF32;
  problem.grad_bias_dtype = Dtype::kF32;
  return problem;
}

// The views' memory is not const in the library's structs; inputs are only read.
MatrixView matrix_view(const std::vector<float>& values, std::int64_t rows, std::int64_t cols) {
  return {const_cast<float*>(values.data()), rows, cols, cols, 1, Dtype::kF32};
}

template <typename Number>
VectorView vector_view(const std::vector<Number>& values, Dtype dtype) {
  return {const_cast<Number*>(values.data()), static_cast<std::int64_t>(values.size()), 1, dtype};
}

void round_into(io::Tensor& to, Dtype dtype, const std::vector<float>& from) {
  auto* bits = reinterpret_cast<std::uint16_t*>(to.data());
  const bool is_bf16 = dtype == Dtype::kBF16;
  for (std::size_t i = 0; i < from.size(); ++i) {
    bits[i] = is_bf16 ? bf16_bits(from[i]) : f16_bits(from[i]);
  }
}

}  // namespace

LossStep::LossStep(const ModelShape& shape, std::int64_t tokens, const LossSettings& settings,
                   bool with_gradients)
    : plan_(flce::plan(problem_of_head(shape, tokens, settings.dtype, with_gradients),
                       settings.caps, settings.request)) {
  if (!is_narrow()) return;
  hidden_ = std::make_unique<io::Tensor>("hidden", settings.dtype, io::Shape{tokens, shape.hidden});
  weight_ =
      std::make_unique<io::Tensor>("weight", settings.dtype, io::Shape{shape.vocab, shape.hidden});
  if (!with_gradients) return;
  grad_hidden_ =
      std::make_unique<io::Tensor>("grad_hidden", settings.dtype, io::Shape{tokens, shape.hidden});
}

void LossStep::prepare() {
  if (!step_) step_ = std::make_unique<Step>(plan_);
}

Inputs LossStep::inputs_of(const std::vector<float>& hidden,
                           const std::vector<std::int64_t>& target, Model& model) {
  const Problem& p = plan_.problem;
  Inputs inputs;
  inputs.hidden = matrix_view(hidden, p.tokens, p.hidden);
  inputs.weight = matrix_view(model.head().value, p.vocab, p.hidden);
  if (is_narrow()) {
    round_into(*hidden_, p.dtype, hidden);
    round_into(*weight_, p.dtype, model.head().value);
    inputs.hidden = io::as_matrix(*hidden_);
    inputs.weight = io::as_matrix(*weight_);
  }
  inputs.target = vector_view(target, Dtype::kI64);
  inputs.bias = vector_view(model.head_bias().value, Dtype::kF32);
  return inputs;
}

Outputs LossStep::outputs_of(Model& model, std::vector<float>& grad_hidden) {
  const Problem& p = plan_.problem;
  Outputs outputs;
  outputs.loss = {&loss_, 1, 1, Dtype::kF32};
  if (!p.wants.any_gradient()) return outputs;
  grad_hidden.resize(static_cast<std::size_t>(p.tokens * p.hidden));
  outputs.grad_hidden =
      is_narrow() ? io::as_matrix(*grad_hidden_) : matrix_view(grad_hidden, p.tokens, p.hidden);
  outputs.grad_weight = matrix_view(model.head().grad, p.vocab, p.hidden);
  outputs.grad_bias = vector_view(model.head_bias().grad, Dtype::kF32);
  return outputs;
}

double LossStep::run(const std::vector<float>& hidden, const std::vector<std::int64_t>& target,
                     Model& model, std::vector<float>& grad_hidden) {
  prepare();
  const Inputs inputs = inputs_of(hidden, target, model);
  const Outputs outputs = outputs_of(model, grad_hidden);
  step_->execute(inputs, outputs);
  if (is_narrow() && plan_.problem.wants.grad_hidden) {
    for (std::size_t i = 0; i < grad_hidden.size(); ++i) {
      grad_hidden[i] = static_cast<float>(
          load_number(plan_.problem.dtype, grad_hidden_->data(), static_cast<std::int64_t>(i)));
    }
  }
  return loss_;
}

}  // namespace flce::cli
