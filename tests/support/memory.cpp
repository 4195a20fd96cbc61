// SPDX-License-Identifier: Apache-2.0
#include "support/memory.hpp"

#include <algorithm>

#include "support/device.hpp"

namespace flce_test {
namespace {

using flce::Dtype;

Storage made(const Place& place, const std::vector<double>& values) {
  Storage storage(place);
  storage.write(values);
  return storage;
}

}  // namespace

template <typename Visit>
void Memory::each_input(auto& memory, Visit visit) {
  visit("hidden", memory.hidden);
  visit("weight", memory.weight);
  visit("target", memory.target);
  visit("bias", memory.bias);
  visit("class_weight", memory.class_weight);
  visit("token_weight", memory.token_weight);
  visit("temperature", memory.temperature);
  visit("normalizer", memory.normalizer);
  visit("grad_output", memory.grad_output);
  visit("grad_entropy", memory.grad_entropy);
}

template <typename Visit>
void Memory::each_output(auto& memory, Visit visit) {
  visit("loss", memory.loss);
  visit("lse", memory.lse);
  visit("logprob", memory.logprob);
  visit("entropy", memory.entropy);
  visit("z_loss", memory.z_loss);
  visit("argmax", memory.argmax);
  visit("num_correct", memory.num_correct);
  visit("num_valid", memory.num_valid);
  visit("topk_logprob", memory.topk_logprob);
  visit("topk_index", memory.topk_index);
  visit("grad_hidden", memory.grad_hidden);
  visit("grad_weight", memory.grad_weight);
  visit("grad_bias", memory.grad_bias);
}

Memory::Memory(const Case& c) {
  make_operands(c);
  make_vectors(c);
  make_token_outputs(c);
  make_gradients(c);
  const auto seal = [](const char*, Storage& storage) { storage.seal(); };
  each_input(*this, seal);
  each_output(*this, seal);
}

void Memory::make_operands(const Case& c) {
  const oracle::Input& in = c.in;
  const Layout& layout = c.layout;
  const std::int64_t sign = layout.reversed_rows ? -1 : 1;
  hidden = made(
      {c.dtype, in.tokens, in.hidden, sign * (in.hidden + layout.hidden_gap), layout.offset}, in.x);
  const std::int64_t weight_sign = on_cuda() ? 1 : sign;  // a card takes no weight backwards
  weight = made(
      {c.dtype, in.vocab, in.hidden, weight_sign * (in.hidden + layout.weight_gap), layout.offset},
      in.w);
  target = Storage({c.target_dtype, in.tokens, 1, layout.target_stride, layout.offset});
  target.write(in.target);
}

void Memory::make_vectors(const Case& c) {
  const oracle::Input& in = c.in;
  const Layout& layout = c.layout;
  const auto vector = [&](const std::vector<double>& values, std::int64_t stride) {
    if (values.empty()) return Storage();
    const auto size = static_cast<std::int64_t>(values.size());
    return made({c.vectors(), size, 1, stride, layout.offset}, values);
  };
  bias = vector(in.bias, layout.bias_stride);
  class_weight = vector(in.class_weight, layout.class_weight_stride);
  token_weight = vector(in.token_weight, layout.token_weight_stride);
  temperature = vector(in.temperature_per_token, layout.token_weight_stride);
  grad_output = vector(in.grad_output, layout.upstream_stride);
  grad_entropy = vector(in.grad_entropy, layout.upstream_stride);
  if (in.has_normalizer && c.normalizer_dtype != Dtype::kNone) {
    normalizer = made({c.normalizer_dtype, 1, 1, 1, 0}, {in.normalizer});
  }
}

void Memory::make_token_outputs(const Case& c) {
  const oracle::Input& in = c.in;
  const Dtype real = c.dtype == Dtype::kF64 ? Dtype::kF64 : Dtype::kF32;
  const std::int64_t stride = 1 + c.layout.output_gap;
  const bool reduced = in.reduction != oracle::Reduction::kNone;
  const auto tokens = [&](Dtype dtype) { return Storage({dtype, in.tokens, 1, stride, 0}); };
  const auto loss_like = [&] { return reduced ? Storage({real, 1, 1, 1, 0}) : tokens(real); };
  loss = loss_like();
  if (c.wants.z_loss) z_loss = loss_like();
  if (c.wants.lse) lse = tokens(real);
  if (c.wants.logprob) logprob = tokens(real);
  if (c.wants.entropy) entropy = tokens(real);
  if (c.wants.argmax) argmax = tokens(Dtype::kI64);
  if (c.wants.num_correct) num_correct = Storage({Dtype::kI64, 1, 1, 1, 0});
  if (c.wants.num_valid) num_valid = Storage({Dtype::kI64, 1, 1, 1, 0});
  if (c.wants.topk > 0) {
    const std::int64_t row = c.wants.topk + c.layout.output_gap;
    topk_logprob = Storage({real, in.tokens, c.wants.topk, row, 0});
    topk_index = Storage({Dtype::kI64, in.tokens, c.wants.topk, row, 0});
  }
}

void Memory::make_gradients(const Case& c) {
  const oracle::Input& in = c.in;
  const std::int64_t stride = in.hidden + c.layout.grad_gap;
  const std::int64_t offset = c.layout.offset;
  if (c.wants.grad_hidden) grad_hidden = Storage({c.dtype, in.tokens, in.hidden, stride, offset});
  if (c.wants.grad_weight) {
    grad_weight = Storage({c.grad_weight_type(), in.vocab, in.hidden, stride, offset});
    if (!c.grad_weight_start.empty()) grad_weight.write(c.grad_weight_start);
  }
  if (c.wants.grad_bias) {
    grad_bias = Storage({c.grad_bias_type(), in.vocab, 1, 1 + c.layout.output_gap, offset});
    if (!c.grad_bias_start.empty()) grad_bias.write(c.grad_bias_start);
  }
}

flce::Inputs Memory::inputs() const {
  flce::Inputs inputs;
  inputs.hidden = hidden.matrix();
  inputs.weight = weight.matrix();
  inputs.target = target.vector();
  inputs.bias = bias.vector();
  inputs.class_weight = class_weight.vector();
  inputs.token_weight = token_weight.vector();
  inputs.temperature = temperature.vector();
  inputs.normalizer = normalizer.vector();
  inputs.grad_output = grad_output.vector();
  inputs.grad_entropy = grad_entropy.vector();
  return inputs;
}

flce::Outputs Memory::outputs() const {
  flce::Outputs outputs;
  outputs.loss = loss.vector();
  outputs.lse = lse.vector();
  outputs.logprob = logprob.vector();
  outputs.entropy = entropy.vector();
  outputs.z_loss = z_loss.vector();
  outputs.argmax = argmax.vector();
  outputs.num_correct = num_correct.vector();
  outputs.num_valid = num_valid.vector();
  outputs.topk_logprob = topk_logprob.matrix();
  outputs.topk_index = topk_index.matrix();
  outputs.grad_hidden = grad_hidden.matrix();
  outputs.grad_weight = grad_weight.matrix();
  outputs.grad_bias = grad_bias.vector();
  return outputs;
}

flce::Problem Memory::problem(const Case& c, flce::Pass pass) const {
  return flce::problem_of(inputs(), outputs(), options_of(c), !c.grad_weight_start.empty(),
                          !c.grad_bias_start.empty(), pass);
}

Results Memory::results() const {
  Results results;
  results.loss = loss.read();
  results.lse = lse.read();
  results.logprob = logprob.read();
  results.entropy = entropy.read();
  results.z_loss = z_loss.read();
  results.topk_logprob = topk_logprob.read();
  results.grad_hidden = grad_hidden.read();
  results.grad_weight = grad_weight.read();
  results.grad_bias = grad_bias.read();
  results.argmax = argmax.read_integers();
  results.num_correct = num_correct.read_integers();
  results.num_valid = num_valid.read_integers();
  results.topk_index = topk_index.read_integers();
  return results;
}

std::string Memory::damage() const {
  std::string text;
  const auto add = [&](const char* name, const std::string& fault) {
    if (!fault.empty()) text += std::string(name) + ": " + fault + "; ";
  };
  each_input(*this, [&](const char* name, const Storage& s) { add(name, s.changed()); });
  each_output(*this, [&](const char* name, const Storage& s) { add(name, s.damaged()); });
  return text;
}

std::string Memory::written() const {
  std::string text;
  each_output(*this, [&](const char* name, const Storage& s) {
    const std::string change = s.changed();
    if (!change.empty()) text += std::string(name) + ": " + change + "; ";
  });
  return text;
}

}  // namespace flce_test
