// SPDX-License-Identifier: Apache-2.0
#include "support/mirrors.hpp"

#include <cstring>
#include <new>
#include <stdexcept>

#include "support/device.hpp"

namespace flce_test {

Mirror::Mirror(Block& block) : block_(&block) {
  const std::size_t bytes = block.all().size();
  if (on_cuda()) {
    device_ = flce::DeviceMemory(bytes);
  } else {
    copy_.reset(static_cast<std::byte*>(::operator new(bytes, std::align_val_t(kAlignment))),
                [](std::byte* p) { ::operator delete(p, std::align_val_t(kAlignment)); });
  }
}

std::byte* Mirror::begin() const { return on_cuda() ? device_.data() : copy_.get(); }

std::byte* Mirror::at(const void* host) const {
  return begin() + (static_cast<const std::byte*>(host) - block_->all().data());
}

void Mirror::upload() {
  if (on_cuda()) return device_.upload(block_->all());
  std::memcpy(copy_.get(), block_->all().data(), block_->all().size());
}

void Mirror::download() const {
  if (on_cuda()) return device_.download(block_->all());
  std::memcpy(block_->all().data(), copy_.get(), block_->all().size());
}

const Mirror& Mirrors::mirror_of(const void* host, bool is_copied) {
  Block* block = Block::around(host);
  if (block == nullptr) throw std::logic_error("a view of memory that is no Block");
  auto at = mirrors_.find(block);
  if (at == mirrors_.end()) at = mirrors_.emplace(block, Entry{Mirror(*block)}).first;
  Entry& entry = at->second;
  if (is_copied && !entry.is_copied) entry.mirror.upload();
  entry.is_copied = entry.is_copied || is_copied;
  return entry.mirror;
}

flce::MatrixView Mirrors::view(flce::MatrixView host) {
  if (host && host.data != nullptr) host.data = mirror_of(host.data, true).at(host.data);
  return host;
}
flce::VectorView Mirrors::view(flce::VectorView host) {
  if (host && host.data != nullptr) host.data = mirror_of(host.data, true).at(host.data);
  return host;
}

std::span<std::byte> Mirrors::span(std::span<std::byte> host) {
  return {mirror_of(host.data(), true).at(host.data()), host.size()};
}
std::span<std::byte> Mirrors::scratch(std::span<std::byte> host) {
  return {mirror_of(host.data(), has_canaries()).at(host.data()), host.size()};
}

flce::Inputs Mirrors::inputs(flce::Inputs host) {
  host.hidden = view(host.hidden);
  host.weight = view(host.weight);
  for (flce::VectorView* vector :
       {&host.target, &host.bias, &host.class_weight, &host.token_weight, &host.temperature,
        &host.normalizer, &host.grad_output, &host.grad_entropy}) {
    *vector = view(*vector);
  }
  return host;
}

flce::Outputs Mirrors::outputs(flce::Outputs host) {
  for (flce::VectorView* vector :
       {&host.loss, &host.lse, &host.logprob, &host.entropy, &host.z_loss, &host.argmax,
        &host.num_correct, &host.num_valid, &host.grad_bias}) {
    *vector = view(*vector);
  }
  for (flce::MatrixView* matrix :
       {&host.topk_logprob, &host.topk_index, &host.grad_hidden, &host.grad_weight}) {
    *matrix = view(*matrix);
  }
  return host;
}

void Mirrors::upload() {
  for (auto& [block, entry] : mirrors_) {
    if (entry.is_copied) entry.mirror.upload();
  }
}
void Mirrors::download() const {
  for (const auto& [block, entry] : mirrors_) {
    if (entry.is_copied) entry.mirror.download();
  }
}

}  // namespace flce_test
