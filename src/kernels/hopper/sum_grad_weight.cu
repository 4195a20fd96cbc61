// SPDX-License-Identifier: Apache-2.0
#include "kernels/hopper/split_sums.cuh"
#include "kernels/hopper/tiles.hpp"

namespace flce::cuda::hopper {

cudaError_t launch_sum_grad_weight(const GradWeight& g, const Halves& sum, bool is_first,
                                   bool is_last, int num_sms, cudaStream_t stream) {
  return launch_split_sum<TileShape, RowMajor>(product_of(g, num_sms), sum,
                                               {g.alpha, is_first, is_last}, stream);
}

}  // namespace flce::cuda::hopper
