// SPDX-License-Identifier: Apache-2.0
#include "bench_cuda_memory.hpp"

#include <cstddef>
#include <string>

#include "common.hpp"
#include "run_outputs.hpp"
#include "run_step.hpp"
#include "verify_numbers.hpp"

namespace flce::cli {

CudaOutputs::CudaOutputs(const Problem& problem) {
  for (const OutputShape& shape : output_shapes(problem)) {
    const auto bytes = static_cast<std::uint64_t>(shape.rows * shape.cols * size_of(shape.dtype));
    named_.push_back({shape.name, shape.dtype, DeviceMemory(bytes)});
    set_view(shape, named_.back().memory.data(), views_);
  }
}

void CudaOutputs::load_starts(const ProblemData& data) {
  for (Named& named : named_) {
    const std::string start = std::string(named.name) + "_start";
    const io::Tensor* tensor = data.find(start);
    if (tensor == nullptr) continue;
    if (tensor->view().dtype == named.dtype) {
      named.memory.upload(tensor->view().bytes);
      continue;
    }
    // The reference's gradients are wider than the start.
    const std::vector<double> values = data.values(start);
    named.memory.upload(std::as_bytes(std::span(values)));
  }
}

std::vector<double> CudaOutputs::losses() const {
  const Named& loss = named_.front();
  std::vector<std::byte> bytes(loss.memory.span().size());
  loss.memory.download(bytes);
  std::vector<double> values(bytes.size() / static_cast<std::size_t>(size_of(loss.dtype)));
  for (std::size_t i = 0; i < values.size(); ++i) {
    values[i] = load_number(loss.dtype, bytes.data(), static_cast<std::int64_t>(i));
  }
  return values;
}

CudaStep::CudaStep(const Plan& plan)
    : plan_(plan),
      outputs_(plan.problem),
      workspace_(plan.workspace_bytes),
      saved_(plan.saved_bytes) {}

RunReport CudaStep::execute(const Inputs& inputs, const CudaStream& stream) {
  const RunReport report = cli::execute(plan_, inputs, outputs_.views(), workspace_.span(),
                                        saved_.span(), {.stream = stream.handle()});
  stream.synchronize();
  return report;
}

void measure_cuda_memory(Variant& variant, const Inputs& inputs, const ProblemData& data,
                         const CudaStream& stream) {
  BenchRow& row = variant.row;
  try {
    // The first call loads code and looks up products, which stays on the card.
    CudaStep(variant.plan).execute(inputs, stream);
    cuda_reset_peak_memory();
    const CudaMemoryUse before = cuda_memory_use();
    CudaStep step(variant.plan);
    step.load_starts(data);
    const RunReport report = step.execute(inputs, stream);
    const CudaMemoryUse after = cuda_memory_use();
    row.extra_bytes =
        static_cast<std::int64_t>(report.workspace_high_water + report.saved_high_water);
    row.peak_bytes = static_cast<std::int64_t>(after.peak_allocated_bytes);
    row.device_bytes = static_cast<std::int64_t>(after.device_used_bytes) -
                       static_cast<std::int64_t>(before.device_used_bytes);
    const std::vector<double> losses = step.outputs().losses();
    if (!losses.empty()) row.loss = losses.front();
  } catch (const Error& error) {
    if (!lacks_room(error) && error.code() != ErrorCode::kUnsupported) throw;
    row.refused = error.what();
    row.runnable = false;
  }
}

}  // namespace flce::cli
