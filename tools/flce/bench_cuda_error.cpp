// SPDX-License-Identifier: Apache-2.0
#include "bench_cuda_error.hpp"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <span>

#include "common.hpp"
#include "parallel.hpp"
#include "run_step.hpp"
#include "verify_numbers.hpp"

namespace flce::cli {
namespace {

// Converted and copied at a time: 64 MiB of f64.
constexpr std::int64_t kBlock = std::int64_t{8} << 20;
constexpr std::int64_t kPiece = std::int64_t{1} << 16;
// Tokens of a chunk, most first: a chunk's logits in f64 have 1 MB a token at V = 131072.
constexpr std::int64_t kChunks[] = {4096, 1024, 256, 64};

Problem in_f64(Problem p) {
  const auto widen = [](Dtype& dtype) {
    if (dtype != Dtype::kNone) dtype = Dtype::kF64;
  };
  for (Dtype* dtype :
       {&p.dtype, &p.bias_dtype, &p.class_weight_dtype, &p.token_weight_dtype, &p.temperature_dtype,
        &p.grad_entropy_dtype, &p.grad_output_dtype, &p.grad_weight_dtype, &p.grad_bias_dtype}) {
    widen(*dtype);
  }
  return p;
}

void convert(Dtype dtype, const void* from, std::int64_t begin, std::int64_t end, double* to) {
  if (dtype == Dtype::kBF16) {
    const auto* values = static_cast<const std::uint16_t*>(from);
    for (std::int64_t i = begin; i < end; ++i) to[i - begin] = float_of_bf16(values[i]);
    return;
  }
  for (std::int64_t i = begin; i < end; ++i) to[i - begin] = load_number(dtype, from, i);
}

// `count` dense numbers of the host on the card, in f64.
DeviceMemory widened(Dtype dtype, const void* data, std::int64_t count) {
  DeviceMemory memory(static_cast<std::uint64_t>(count) * sizeof(double));
  std::vector<double> block(static_cast<std::size_t>(std::min(count, kBlock)));
  for (std::int64_t begin = 0; begin < count; begin += kBlock) {
    const std::int64_t size = std::min(kBlock, count - begin);
    in_parallel(size, kPiece, [&](std::int64_t first, std::int64_t last) {
      convert(dtype, data, begin + first, begin + last, block.data() + first);
    });
    memory.upload(std::as_bytes(std::span(block.data(), static_cast<std::size_t>(size))),
                  static_cast<std::uint64_t>(begin) * sizeof(double));
  }
  return memory;
}

// The inputs of the f64 problem. Targets and the normalizer keep their types.
class WideInputs {
 public:
  explicit WideInputs(const Inputs& host) : views_(host) {
    for (MatrixView Inputs::*matrix : {&Inputs::hidden, &Inputs::weight}) {
      MatrixView& view = views_.*matrix;
      view.data = add(widened(view.dtype, view.data, view.rows * view.cols));
      view.dtype = Dtype::kF64;
    }
    for (VectorView Inputs::*vector :
         {&Inputs::bias, &Inputs::class_weight, &Inputs::token_weight, &Inputs::temperature,
          &Inputs::grad_output, &Inputs::grad_entropy}) {
      VectorView& view = views_.*vector;
      if (!view) continue;
      view.data = add(widened(view.dtype, view.data, view.size));
      view.dtype = Dtype::kF64;
    }
    for (VectorView Inputs::*vector : {&Inputs::target, &Inputs::normalizer}) {
      VectorView& view = views_.*vector;
      if (!view) continue;
      const auto bytes = static_cast<std::size_t>(view.size * size_of(view.dtype));
      DeviceMemory memory(bytes);
      memory.upload({static_cast<const std::byte*>(view.data), bytes});
      view.data = add(std::move(memory));
    }
  }
  const Inputs& views() const noexcept { return views_; }

 private:
  void* add(DeviceMemory memory) {
    memories_.push_back(std::move(memory));
    return memories_.back().data();
  }
  Inputs views_;
  std::vector<DeviceMemory> memories_;
};

}  // namespace

CudaReference::CudaReference(const Problem& problem, const ProblemData& data,
                             const DeviceCaps& caps, const CudaStream& stream) {
  const Problem wide = in_f64(problem);
  const WideInputs inputs(data.inputs());
  right_ = std::make_unique<CudaOutputs>(wide);
  for (const std::int64_t chunk : kChunks) {
    const bool is_last = chunk == kChunks[std::size(kChunks) - 1];
    try {
      const Plan plan = flce::plan(wide, caps, {.chunk = chunk});
      right_->load_starts(data);
      DeviceMemory workspace(plan.workspace_bytes);
      DeviceMemory saved(plan.saved_bytes);
      execute(plan, inputs.views(), right_->views(), workspace.span(), saved.span(),
              {.stream = stream.handle()});
      stream.synchronize();
      break;
    } catch (const Error& error) {
      if (is_last || !lacks_room(error)) throw;
    }
  }
  losses_ = right_->losses();
}

Errors CudaReference::errors_of(const CudaOutputs& outputs) const {
  Errors errors;
  const std::vector<double> got = outputs.losses();
  errors.loss = 0.0;
  for (std::size_t i = 0; i < losses_.size(); ++i) {
    if (got[i] == losses_[i] || (std::isnan(got[i]) && std::isnan(losses_[i]))) continue;
    const double error = std::abs(got[i] - losses_[i]) / std::abs(losses_[i]);
    errors.loss = std::isnan(error) ? INFINITY : std::max(errors.loss, error);
  }
  const Outputs& views = outputs.views();
  const Outputs& right = right_->views();
  if (views.grad_hidden) {
    errors.grad_hidden = cuda_relative_error(views.grad_hidden, right.grad_hidden);
  }
  if (views.grad_weight) {
    errors.grad_weight = cuda_relative_error(views.grad_weight, right.grad_weight);
  }
  return errors;
}

}  // namespace flce::cli
