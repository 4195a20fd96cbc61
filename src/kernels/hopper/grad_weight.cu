// SPDX-License-Identifier: Apache-2.0
#include "kernels/hopper/target_terms.cuh"
#include "kernels/hopper/tiles.hpp"

namespace flce::cuda::hopper {

cudaError_t launch_grad_weight(const GradWeight& g, int num_sms, cudaStream_t stream) {
  using Kernel = typename Product<TileShape, ColumnMajor, RowMajor, Bf16, WeightVisitor, void,
                                  ColumnMajor>::Kernel;
  const WeightParams visitor{g.first_token, static_cast<std::uint16_t*>(g.lower), g.alpha, g.hidden,
                             g.cols < g.rows};
  return launch_product<TileShape, Kernel>(product_of(g, num_sms), visitor, stream);
}

}  // namespace flce::cuda::hopper
