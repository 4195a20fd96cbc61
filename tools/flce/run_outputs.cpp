// SPDX-License-Identifier: Apache-2.0
#include "run_outputs.hpp"

#include <string>
#include <utility>

namespace flce::cli {
namespace {

Dtype or_else(Dtype dtype, Dtype otherwise) { return dtype == Dtype::kNone ? otherwise : dtype; }

}  // namespace

OutputTensors::OutputTensors(const Problem& p) {
  const Dtype real = result_dtype(p.dtype);
  const std::int64_t losses = p.options.reduction == Reduction::kNone ? p.tokens : 1;
  const Wants& wants = p.wants;
  add_vector("loss", &Outputs::loss, real, losses);
  if (wants.lse) add_vector("lse", &Outputs::lse, real, p.tokens);
  if (wants.logprob) add_vector("logprob", &Outputs::logprob, real, p.tokens);
  if (wants.entropy) add_vector("entropy", &Outputs::entropy, real, p.tokens);
  if (wants.z_loss) add_vector("z_loss", &Outputs::z_loss, real, losses);
  if (wants.argmax) add_vector("argmax", &Outputs::argmax, Dtype::kI64, p.tokens);
  if (wants.num_correct) add_vector("num_correct", &Outputs::num_correct, Dtype::kI64, 1);
  if (wants.num_valid) add_vector("num_valid", &Outputs::num_valid, Dtype::kI64, 1);
  if (wants.topk > 0) {
    add_matrix("topk_logprob", &Outputs::topk_logprob, real, p.tokens, wants.topk);
    add_matrix("topk_index", &Outputs::topk_index, Dtype::kI64, p.tokens, wants.topk);
  }
  if (wants.grad_hidden) {
    add_matrix("grad_hidden", &Outputs::grad_hidden, p.dtype, p.tokens, p.hidden);
  }
  if (wants.grad_weight) {
    add_matrix("grad_weight", &Outputs::grad_weight, or_else(p.grad_weight_dtype, p.dtype), p.vocab,
               p.hidden);
  }
  if (wants.grad_bias) {
    add_vector("grad_bias", &Outputs::grad_bias, or_else(p.grad_bias_dtype, p.bias_dtype), p.vocab);
  }
}

void OutputTensors::add_vector(std::string_view name, VectorView Outputs::*view, Dtype dtype,
                               std::int64_t size) {
  named_.push_back({name, std::make_unique<io::Tensor>(std::string(name), dtype, io::Shape{size})});
  views_.*view = io::as_vector(*named_.back().tensor);
}

void OutputTensors::add_matrix(std::string_view name, MatrixView Outputs::*view, Dtype dtype,
                               std::int64_t rows, std::int64_t cols) {
  named_.push_back(
      {name, std::make_unique<io::Tensor>(std::string(name), dtype, io::Shape{rows, cols})});
  views_.*view = io::as_matrix(*named_.back().tensor);
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
