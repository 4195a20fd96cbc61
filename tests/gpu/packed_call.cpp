// SPDX-License-Identifier: Apache-2.0
#include "gpu/packed_call.hpp"

#include <cstring>

#include "support/device.hpp"
#include "support/storage.hpp"

namespace flce_test {

using flce::Dtype;

std::byte* PackedCall::add(std::int64_t elements, Dtype dtype, bool is_output) {
  const auto bytes = static_cast<std::uint64_t>(elements * flce::size_of(dtype));
  buffers_.push_back({flce::DeviceMemory(bytes), is_output});
  return buffers_.back().memory.data();
}

flce::MatrixView PackedCall::matrix(std::int64_t rows, std::int64_t cols, Dtype dtype,
                                    bool is_output) {
  return {add(rows * cols, dtype, is_output), rows, cols, cols, 1, dtype};
}

flce::VectorView PackedCall::vector(std::int64_t size, Dtype dtype, bool is_output) {
  return {add(size, dtype, is_output), size, 1, dtype};
}

PackedCall::PackedCall(const Case& c, const RunConfig& config) {
  const oracle::Input& in = c.in;
  const Dtype real = c.dtype == Dtype::kF64 ? Dtype::kF64 : Dtype::kF32;
  inputs_.hidden = matrix(in.tokens, in.hidden, c.dtype, false);
  inputs_.weight = matrix(in.vocab, in.hidden, c.dtype, false);
  inputs_.target = vector(in.tokens, c.target_dtype, false);
  if (!in.bias.empty()) inputs_.bias = vector(in.vocab, c.vectors(), false);
  const bool is_vector = in.reduction == oracle::Reduction::kNone;
  outputs_.loss = vector(is_vector ? in.tokens : 1, real, true);
  if (c.wants.num_valid) outputs_.num_valid = vector(1, Dtype::kI64, true);
  if (c.wants.grad_hidden) outputs_.grad_hidden = matrix(in.tokens, in.hidden, c.dtype, true);
  if (c.wants.grad_weight) {
    outputs_.grad_weight = matrix(in.vocab, in.hidden, c.grad_weight_type(), true);
  }
  if (c.wants.grad_bias) outputs_.grad_bias = vector(in.vocab, c.grad_bias_type(), true);
  flce::PlanRequest request;
  request.method = config.method;
  request.chunk = config.chunk;
  request.route = test_route();
  plan_ =
      flce::plan(flce::problem_of(inputs_, outputs_, options_of(c)), flce::cuda_caps(), request);
  workspace_ = flce::DeviceMemory(plan_.workspace_bytes);
  upload(c);
}

void PackedCall::upload(const Case& c) {
  std::size_t next = 0;
  const auto write = [&](Dtype dtype, const auto& values) {
    if (values.empty()) return;
    Storage packed({dtype, static_cast<std::int64_t>(values.size()), 1, 1, 0});
    packed.write(values);
    buffers_[next].memory.upload({static_cast<const std::byte*>(packed.vector().data),
                                  values.size() * static_cast<std::size_t>(flce::size_of(dtype))});
    ++next;
  };
  write(c.dtype, c.in.x);
  write(c.dtype, c.in.w);
  write(c.target_dtype, c.in.target);
  write(c.vectors(), c.in.bias);
}

void PackedCall::poison(std::byte value) {
  for (Buffer& buffer : buffers_) {
    if (buffer.is_output) buffer.memory.fill(value);
  }
  workspace_.fill(value);
  flce::cuda_synchronize();  // a stream of its own would not wait for it
}

void PackedCall::run(void* stream, const flce::RunOptions& options) const {
  flce::RunOptions with_stream = options;
  with_stream.stream = stream;
  flce::run(plan_, inputs_, outputs_, workspace_.span(), with_stream);
}

std::vector<std::byte> PackedCall::output_bytes() const {
  std::vector<std::byte> all;
  for (const Buffer& buffer : buffers_) {
    if (!buffer.is_output) continue;
    const std::size_t begin = all.size();
    all.resize(begin + buffer.memory.span().size());
    buffer.memory.download(std::span(all).subspan(begin));
  }
  return all;
}

double PackedCall::loss() const {
  const std::vector<std::byte> all = output_bytes();  // the loss comes first
  if (outputs_.loss.dtype == Dtype::kF64) {
    double value = 0.0;
    std::memcpy(&value, all.data(), sizeof(value));
    return value;
  }
  float value = 0.0F;
  std::memcpy(&value, all.data(), sizeof(value));
  return value;
}

std::int64_t PackedCall::num_buffers() const {
  return static_cast<std::int64_t>(buffers_.size()) + 1;
}

}  // namespace flce_test
