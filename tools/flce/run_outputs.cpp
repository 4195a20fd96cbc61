// SPDX-License-Identifier: Apache-2.0
#include "run_outputs.hpp"

#include <string>
#include <utility>

namespace flce::cli {
namespace {

Dtype or_else(Dtype dtype, Dtype otherwise) { return dtype == Dtype::kNone ? otherwise : dtype; }

}  // namespace

std::vector<OutputShape> output_shapes(const Problem& p) {
  const Dtype real = result_dtype(p.dtype);
  const std::int64_t losses = p.options.reduction == Reduction::kNone ? p.tokens : 1;
  const Wants& wants = p.wants;
  std::vector<OutputShape> shapes;
  const auto vector = [&](bool wanted, std::string_view name, VectorView Outputs::*view,
                          Dtype dtype, std::int64_t size) {
    if (wanted) shapes.push_back({name, view, nullptr, dtype, size, 1});
  };
  const auto matrix = [&](bool wanted, std::string_view name, MatrixView Outputs::*view,
                          Dtype dtype, std::int64_t rows, std::int64_t cols) {
    if (wanted) shapes.push_back({name, nullptr, view, dtype, rows, cols});
  };
  vector(true, "loss", &Outputs::loss, real, losses);
  vector(wants.lse, "lse", &Outputs::lse, real, p.tokens);
  vector(wants.logprob, "logprob", &Outputs::logprob, real, p.tokens);
  vector(wants.entropy, "entropy", &Outputs::entropy, real, p.tokens);
  vector(wants.z_loss, "z_loss", &Outputs::z_loss, real, losses);
  vector(wants.argmax, "argmax", &Outputs::argmax, Dtype::kI64, p.tokens);
  vector(wants.num_correct, "num_correct", &Outputs::num_correct, Dtype::kI64, 1);
  vector(wants.num_valid, "num_valid", &Outputs::num_valid, Dtype::kI64, 1);
  matrix(wants.topk > 0, "topk_logprob", &Outputs::topk_logprob, real, p.tokens, wants.topk);
  matrix(wants.topk > 0, "topk_index", &Outputs::topk_index, Dtype::kI64, p.tokens, wants.topk);
  matrix(wants.grad_hidden, "grad_hidden", &Outputs::grad_hidden, p.dtype, p.tokens, p.hidden);
  matrix(wants.grad_weight, "grad_weight", &Outputs::grad_weight,
         or_else(p.grad_weight_dtype, p.dtype), p.vocab, p.hidden);
  vector(wants.grad_bias, "grad_bias", &Outputs::grad_bias,
         or_else(p.grad_bias_dtype, p.bias_dtype), p.vocab);
  return shapes;
}

io::Shape shape_of(const OutputShape& shape) {
  if (shape.vector != nullptr) return {shape.rows};
  return {shape.rows, shape.cols};
}

void set_view(const OutputShape& shape, void* data, Outputs& outputs) {
  if (shape.vector != nullptr) {
    outputs.*shape.vector = {data, shape.rows, 1, shape.dtype};
  } else {
    outputs.*shape.matrix = {data, shape.rows, shape.cols, shape.cols, 1, shape.dtype};
  }
}

Outputs views_without_memory(const Problem& problem) {
  Outputs views;
  for (const OutputShape& shape : output_shapes(problem)) set_view(shape, nullptr, views);
  return views;
}

Outputs wanted_of(const Problem& problem, Outputs outputs) {
  if (!problem.wants.grad_hidden) outputs.grad_hidden = {};
  if (!problem.wants.grad_weight) outputs.grad_weight = {};
  if (!problem.wants.grad_bias) outputs.grad_bias = {};
  return outputs;
}

std::uint64_t output_bytes(const Problem& problem) {
  std::int64_t bytes = 0;
  for (const OutputShape& shape : output_shapes(problem)) {
    bytes += shape.rows * shape.cols * size_of(shape.dtype);
  }
  return static_cast<std::uint64_t>(bytes);
}

OutputTensors::OutputTensors(const Problem& problem) {
  for (const OutputShape& shape : output_shapes(problem)) {
    named_.push_back({shape.name, std::make_unique<io::Tensor>(std::string(shape.name), shape.dtype,
                                                               shape_of(shape))});
    set_view(shape, named_.back().tensor->data(), views_);
  }
}

io::Tensor* OutputTensors::find(std::string_view name) const noexcept {
  for (const Named& named : named_) {
    if (named.name == name) return named.tensor.get();
  }
  return nullptr;
}

std::vector<io::TensorView> OutputTensors::tensors() const {
  std::vector<io::TensorView> views;
  for (const Named& named : named_) views.push_back(named.tensor->view());
  return views;
}

}  // namespace flce::cli
