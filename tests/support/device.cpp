// SPDX-License-Identifier: Apache-2.0
#include "support/device.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <map>
#include <memory>
#include <optional>
#include <stdexcept>
#include <string>

#include "flce/device.hpp"
#include "support/storage.hpp"

namespace flce_test {
namespace {

// What ctest takes for "skipped" (SKIP_RETURN_CODE).
constexpr int kSkipped = 77;

TestDevice read_test_device() {
  const char* text = std::getenv("FLCE_TEST_DEVICE");
  const std::string name = text != nullptr ? text : "";
  if (name.empty() || name == "cpu") return TestDevice::kCpu;
  if (name == "copy") return TestDevice::kCopy;
  if (name == "cuda") return TestDevice::kCuda;
  std::fprintf(stderr, "FLCE_TEST_DEVICE is '%s'; known: cpu, copy, cuda\n", text);
  std::exit(2);
}

// Ends the whole program before its first test where its device is missing: to skip is no failure.
class DeviceIsThere : public testing::Environment {
 public:
  void SetUp() override {
    if (!on_cuda() || flce::has_cuda()) return;
    std::printf("skipped, FLCE_TEST_DEVICE is cuda: %s\n", flce::cuda_refusal().c_str());
    std::fflush(stdout);
    std::exit(kSkipped);
  }
};
[[maybe_unused]] testing::Environment* const kDeviceIsThere =
    testing::AddGlobalTestEnvironment(new DeviceIsThere);

// One block's bytes on the device, at the same distance from a 64-byte boundary.
class Mirror {
 public:
  explicit Mirror(Block& block) : block_(&block) {
    const std::span<std::byte> all = block.all();
    if (on_cuda()) {
      device_ = flce::DeviceMemory(all.size());
    } else {
      copy_.reset(static_cast<std::byte*>(::operator new(all.size(), std::align_val_t(kAlignment))),
                  [](std::byte* p) { ::operator delete(p, std::align_val_t(kAlignment)); });
    }
  }

  std::byte* at(const std::byte* host) const { return begin() + (host - block_->all().data()); }
  void upload() {
    if (on_cuda()) return device_.upload(block_->all());
    std::memcpy(copy_.get(), block_->all().data(), block_->all().size());
  }
  void download() const {
    if (on_cuda()) return device_.download(block_->all());
    std::memcpy(block_->all().data(), copy_.get(), block_->all().size());
  }

 private:
  std::byte* begin() const { return on_cuda() ? device_.data() : copy_.get(); }

  Block* block_;
  flce::DeviceMemory device_;
  std::shared_ptr<std::byte> copy_;
};

// The mirrors of all memory of one call.
class Mirrors {
 public:
  template <typename View>
  View view(View host) {
    if (host && host.data != nullptr) {
      host.data = mirror_of(host.data, true).at(bytes(host.data));
    }
    return host;
  }
  std::span<std::byte> span(std::span<std::byte> host) {
    return {mirror_of(host.data(), true).at(host.data()), host.size()};
  }
  // Memory that nobody reads before the call writes it, or looks at after. Under a tool that finds
  // reads of such memory (no canaries then) it stays as it is on the device.
  std::span<std::byte> scratch(std::span<std::byte> host) {
    return {mirror_of(host.data(), has_canaries()).at(host.data()), host.size()};
  }
  flce::Inputs inputs(flce::Inputs in) {
    in.hidden = view(in.hidden);
    in.weight = view(in.weight);
    for (flce::VectorView* vector :
         {&in.target, &in.bias, &in.class_weight, &in.token_weight, &in.temperature, &in.normalizer,
          &in.grad_output, &in.grad_entropy}) {
      *vector = view(*vector);
    }
    return in;
  }
  flce::Outputs outputs(flce::Outputs out) {
    for (flce::VectorView* vector :
         {&out.loss, &out.lse, &out.logprob, &out.entropy, &out.z_loss, &out.argmax,
          &out.num_correct, &out.num_valid, &out.grad_bias}) {
      *vector = view(*vector);
    }
    for (flce::MatrixView* matrix :
         {&out.topk_logprob, &out.topk_index, &out.grad_hidden, &out.grad_weight}) {
      *matrix = view(*matrix);
    }
    return out;
  }
  void download() const {
    for (const auto& [block, entry] : mirrors_) {
      if (entry.is_copied) entry.mirror.download();
    }
  }

 private:
  struct Entry {
    Mirror mirror;
    bool is_copied = false;
  };

  static const std::byte* bytes(const void* host) { return static_cast<const std::byte*>(host); }
  const Mirror& mirror_of(const void* host, bool is_copied) {
    Block* block = Block::around(host);
    if (block == nullptr) throw std::logic_error("a view of memory that is no Block");
    const auto [at, is_new] = mirrors_.try_emplace(block, Entry{Mirror(*block)});
    Entry& entry = at->second;
    if (is_copied && !entry.is_copied) entry.mirror.upload();
    entry.is_copied = entry.is_copied || is_copied;
    return entry.mirror;
  }

  std::map<Block*, Entry> mirrors_;
};

// Runs `call` on mirrors, with a stream of its own, and copies back whatever comes of it.
template <typename Call>
void on_device(const flce::RunOptions& options, Call call) {
  Mirrors mirrors;
  flce::RunOptions with_stream = options;
  std::optional<flce::CudaStream> stream;
  if (on_cuda() && options.stream == nullptr) with_stream.stream = stream.emplace().handle();
  try {
    call(mirrors, with_stream);
  } catch (...) {
    if (stream) stream->synchronize();
    mirrors.download();
    throw;
  }
  if (stream) stream->synchronize();
  mirrors.download();
}

}  // namespace

TestDevice test_device() {
  static const TestDevice device = read_test_device();
  return device;
}

void run(const flce::Plan& plan, const flce::Inputs& inputs, const flce::Outputs& outputs,
         std::span<std::byte> workspace, const flce::RunOptions& options) {
  if (test_device() == TestDevice::kCpu) {
    return flce::run(plan, inputs, outputs, workspace, options);
  }
  on_device(options, [&](Mirrors& mirrors, const flce::RunOptions& with_stream) {
    flce::run(plan, mirrors.inputs(inputs), mirrors.outputs(outputs), mirrors.scratch(workspace),
              with_stream);
  });
}

void forward(const flce::Plan& plan, const flce::Inputs& inputs, const flce::Outputs& outputs,
             std::span<std::byte> workspace, std::span<std::byte> saved,
             const flce::RunOptions& options) {
  if (test_device() == TestDevice::kCpu) {
    return flce::forward(plan, inputs, outputs, workspace, saved, options);
  }
  on_device(options, [&](Mirrors& mirrors, const flce::RunOptions& with_stream) {
    flce::forward(plan, mirrors.inputs(inputs), mirrors.outputs(outputs),
                  mirrors.scratch(workspace), mirrors.span(saved), with_stream);
  });
}

void backward(const flce::Plan& plan, const flce::Inputs& inputs, const flce::Outputs& outputs,
              std::span<std::byte> workspace, std::span<std::byte> saved,
              const flce::RunOptions& options) {
  if (test_device() == TestDevice::kCpu) {
    return flce::backward(plan, inputs, outputs, workspace, saved, options);
  }
  on_device(options, [&](Mirrors& mirrors, const flce::RunOptions& with_stream) {
    flce::backward(plan, mirrors.inputs(inputs), mirrors.outputs(outputs),
                   mirrors.scratch(workspace), mirrors.span(saved), with_stream);
  });
}

void scale_grads(const flce::VectorView& upstream, const flce::Outputs& gradients) {
  if (test_device() == TestDevice::kCpu) {
    return flce::scale_grads(upstream, gradients.grad_hidden, gradients.grad_weight,
                             gradients.grad_bias);
  }
  on_device({}, [&](Mirrors& mirrors, const flce::RunOptions& with_stream) {
    flce::scale_grads(mirrors.view(upstream), mirrors.view(gradients.grad_hidden),
                      mirrors.view(gradients.grad_weight), mirrors.view(gradients.grad_bias),
                      on_cuda() ? flce::DeviceKind::kCuda : flce::DeviceKind::kCpu,
                      with_stream.stream);
  });
}

}  // namespace flce_test
