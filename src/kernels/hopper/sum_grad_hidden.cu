// SPDX-License-Identifier: Apache-2.0
#include "kernels/hopper/split_sums.cuh"
#include "kernels/hopper/tiles.hpp"

namespace flce::cuda::hopper {

cudaError_t launch_sum_grad_hidden(const GradHidden& g, const Halves& sum, bool is_first,
                                   int num_sms, cudaStream_t stream) {
  return launch_split_sum<SumGradHiddenShape, RowMajor, RowMajor>(
      product_of(g, num_sms), sum, {nullptr, is_first, false}, stream);
}

}  // namespace flce::cuda::hopper
