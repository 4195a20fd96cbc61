// SPDX-License-Identifier: Apache-2.0
// Errors against float64 on a card: the same problem, its inputs widened to f64, computed there
// once; every variant's results are compared with it where they lie.
#pragma once

#include <memory>
#include <vector>

#include "bench_cuda_memory.hpp"
#include "bench_error.hpp"

namespace flce::cli {

class CudaReference {
 public:
  // Computes it. Throws an Error that lacks_room() where the card has no room.
  CudaReference(const Problem& problem, const ProblemData& data, const DeviceCaps& caps,
                const CudaStream& stream);

  // Of outputs that were made from `data`. A gradient that is not there is not compared.
  Errors errors_of(const CudaOutputs& outputs) const;

 private:
  std::unique_ptr<CudaOutputs> right_;
  std::vector<double> losses_;
};

}  // namespace flce::cli
