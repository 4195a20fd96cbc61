// SPDX-License-Identifier: Apache-2.0
#include "kernels/hopper/split_sums.cuh"
#include "kernels/hopper/tiles.hpp"

namespace flce::cuda::hopper {

cudaError_t launch_sum_grad_hidden(const GradHidden& g, const Halves& sum, bool is_first,
                                   int num_sms, cudaStream_t stream) {
  const ProductArgs product = product_of(g, num_sms);
  const SplitSumParams params{nullptr, is_first, false};
  if (g.parts.count > 1) {
    return launch_split_sum<PartsShape, ColumnMajor>(product, sum, params, stream);
  }
  return is_wide_better(g.hidden, g.rows, num_sms)
             ? launch_split_sum<WideShape, ColumnMajor>(product, sum, params, stream)
             : launch_split_sum<TileShape, ColumnMajor>(product, sum, params, stream);
}

}  // namespace flce::cuda::hopper
