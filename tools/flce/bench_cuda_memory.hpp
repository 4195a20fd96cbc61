// SPDX-License-Identifier: Apache-2.0
// What a variant of `flce bench` needs on a card, and its peak, measured while nothing but the
// inputs lies beside it.
#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

#include "bench_variants.hpp"
#include "flce/device.hpp"
#include "verify_data.hpp"

namespace flce::cli {

// Results on the current card. Gradients that are accumulated into begin with what the data says.
class CudaOutputs {
 public:
  explicit CudaOutputs(const Problem& problem);

  const Outputs& views() const noexcept { return views_; }
  void load_starts(const ProblemData& data);
  // The values of the loss.
  std::vector<double> losses() const;

 private:
  struct Named {
    std::string_view name;
    Dtype dtype;
    DeviceMemory memory;
  };
  Outputs views_;
  std::vector<Named> named_;
};

// Outputs, workspace and saved memory of one plan, and its calls.
class CudaStep {
 public:
  // Throws Error{kOutOfMemory} where the card has no room.
  explicit CudaStep(const Plan& plan);

  const CudaOutputs& outputs() const noexcept { return outputs_; }
  void load_starts(const ProblemData& data) { outputs_.load_starts(data); }
  // Waits for the results.
  RunReport execute(const Inputs& inputs, const CudaStream& stream);

 private:
  Plan plan_;
  CudaOutputs outputs_;
  DeviceMemory workspace_;
  DeviceMemory saved_;
};

// Fills in extra_bytes, peak_bytes, device_bytes and the loss of a row; where the variant does not
// fit, the reason. `inputs` must be all that is allocated.
void measure_cuda_memory(Variant& variant, const Inputs& inputs, const ProblemData& data,
                         const CudaStream& stream);

}  // namespace flce::cli
