// SPDX-License-Identifier: Apache-2.0
#include "device_memory.hpp"

#include <algorithm>
#include <cstring>
#include <utility>

namespace flce::cli {
namespace {

// Elements from the first to behind the last one that a view can reach, relative to its data.
struct Reach {
  std::int64_t begin = 0;
  std::int64_t end = 0;
};

Reach reach_of(std::int64_t count, std::int64_t stride, std::int64_t width) {
  if (count <= 0 || width <= 0) return {};
  const std::int64_t last = (count - 1) * stride;
  return {std::min<std::int64_t>(last, 0), std::max<std::int64_t>(last, 0) + width};
}

Reach reach_of(const MatrixView& view) { return reach_of(view.rows, view.row_stride, view.cols); }
Reach reach_of(const VectorView& view) { return reach_of(view.size, view.stride, 1); }

bool has_gaps(const MatrixView& view) { return view.rows > 1 && view.row_stride != view.cols; }
bool has_gaps(const VectorView& view) { return view.size > 1 && view.stride != 1; }

template <typename Visit>
void for_each_input(Inputs& inputs, const Visit& visit) {
  visit(inputs.hidden);
  visit(inputs.weight);
  visit(inputs.target);
  visit(inputs.bias);
  visit(inputs.class_weight);
  visit(inputs.token_weight);
  visit(inputs.temperature);
  visit(inputs.normalizer);
  visit(inputs.grad_output);
  visit(inputs.grad_entropy);
}

template <typename Visit>
void for_each_result(Outputs& outputs, const Visit& visit) {
  visit(outputs.loss);
  visit(outputs.lse);
  visit(outputs.logprob);
  visit(outputs.entropy);
  visit(outputs.z_loss);
  visit(outputs.argmax);
  visit(outputs.num_correct);
  visit(outputs.num_valid);
  visit(outputs.topk_logprob);
  visit(outputs.topk_index);
  visit(outputs.grad_hidden);
}

}  // namespace

DeviceBuffer::DeviceBuffer(DeviceKind device, std::uint64_t bytes) : memory_(Workspace(0)) {
  if (device == DeviceKind::kCuda) {
    memory_ = DeviceMemory(bytes);
  } else {
    memory_ = Workspace(bytes);
  }
}

std::span<std::byte> DeviceBuffer::span() noexcept {
  return std::visit([](auto& memory) { return memory.span(); }, memory_);
}

void DeviceBuffer::fill(std::byte value) {
  if (auto* memory = std::get_if<DeviceMemory>(&memory_)) return memory->fill(value);
  const std::span<std::byte> bytes = span();
  std::fill(bytes.begin(), bytes.end(), value);
}

// Gives each view its copy, in one order always, and puts the copy's address into the view.
struct DeviceTensors::Binder {
  std::vector<Copy>& copies;
  std::size_t next = 0;

  template <typename View>
  void operator()(View& view, Role role) {
    if (next == copies.size()) copies.emplace_back();
    Copy& copy = copies[next++];
    // A view without memory goes on to the library, which refuses it by name.
    const Reach reach = view.data == nullptr ? Reach{} : reach_of(view);
    const std::int64_t size = size_of(view.dtype);
    const auto bytes = static_cast<std::uint64_t>((reach.end - reach.begin) * size);
    // Freed first, so that the old and the new copy need not fit side by side.
    if (bytes != copy.bytes) copy.memory = DeviceMemory();
    if (bytes != copy.bytes) copy.memory = DeviceMemory(bytes);
    copy.bytes = bytes;
    copy.role = role == Role::kOutput && has_gaps(view) ? Role::kStart : role;
    if (bytes == 0) return;
    const std::int64_t before = reach.begin * size;
    copy.host = static_cast<std::byte*>(view.data) + before;
    view.data = copy.memory.data() - before;
  }
};

DeviceTensors::DeviceTensors(const Plan& plan)
    : has_copies_(plan.caps.kind == DeviceKind::kCuda),
      accumulates_weight_(plan.problem.accumulate_grad_weight),
      accumulates_bias_(plan.problem.accumulate_grad_bias) {}

void DeviceTensors::bind(const Inputs& host_inputs, const Outputs& host_outputs) {
  inputs_ = host_inputs;
  outputs_ = host_outputs;
  if (!has_copies_) return;
  Binder binder{copies_};
  for_each_input(inputs_, [&](auto& view) { binder(view, Role::kInput); });
  for_each_result(outputs_, [&](auto& view) { binder(view, Role::kOutput); });
  binder(outputs_.grad_weight, accumulates_weight_ ? Role::kStart : Role::kOutput);
  binder(outputs_.grad_bias, accumulates_bias_ ? Role::kStart : Role::kOutput);
}

void DeviceTensors::upload() {
  for (Copy& copy : copies_) {
    if (copy.role == Role::kInput && copy.bytes > 0) copy.memory.upload({copy.host, copy.bytes});
  }
  upload_starts();
}

void DeviceTensors::upload_starts() {
  for (Copy& copy : copies_) {
    if (copy.bytes == 0) continue;
    if (copy.role == Role::kStart) copy.memory.upload({copy.host, copy.bytes});
    if (copy.role == Role::kOutput) copy.memory.fill(std::byte{0xFF});
  }
}

void DeviceTensors::download() {
  for (Copy& copy : copies_) {
    if (copy.role != Role::kInput && copy.bytes > 0) copy.memory.download({copy.host, copy.bytes});
  }
}

}  // namespace flce::cli
