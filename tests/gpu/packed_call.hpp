// SPDX-License-Identifier: Apache-2.0
// A call whose memory lies on the card for as long as this lives: packed rows, each operand and
// each output a piece of memory of exactly its bytes, and a workspace of exactly the planned ones.
#pragma once

#include <cstdint>
#include <vector>

#include "flce/device.hpp"
#include "flce/flce.hpp"
#include "support/runner.hpp"
#include "support/test_case.hpp"

namespace flce_test {

class PackedCall {
 public:
  // Loss, both gradients and, with a bias, its gradient, as far as they are wanted.
  PackedCall(const Case& c, const RunConfig& config);

  // Other values, of the same sizes.
  void upload(const Case& c);
  // Every byte of the outputs, and of the workspace.
  void poison(std::byte value);
  void run(void* stream, const flce::RunOptions& options = {}) const;
  // The bytes of all outputs, one after the other. Waits.
  std::vector<std::byte> output_bytes() const;
  double loss() const;

  const flce::Plan& plan() const { return plan_; }
  std::int64_t num_buffers() const;
  const flce::Inputs& inputs() const { return inputs_; }
  const flce::Outputs& outputs() const { return outputs_; }
  std::span<std::byte> workspace() const { return workspace_.span(); }

 private:
  struct Buffer {
    flce::DeviceMemory memory;
    bool is_output = false;
  };
  std::byte* add(std::int64_t elements, flce::Dtype dtype, bool is_output);
  flce::MatrixView matrix(std::int64_t rows, std::int64_t cols, flce::Dtype dtype, bool is_output);
  flce::VectorView vector(std::int64_t size, flce::Dtype dtype, bool is_output);

  std::vector<Buffer> buffers_;
  flce::DeviceMemory workspace_;
  flce::Inputs inputs_;
  flce::Outputs outputs_;
  flce::Plan plan_;
};

}  // namespace flce_test
