// SPDX-License-Identifier: Apache-2.0
#include "kernels/hopper/target_terms.cuh"
#include "kernels/hopper/tiles.hpp"

namespace flce::cuda::hopper {

namespace {

template <typename Shape>
cudaError_t launch(const GradWeight& g, int num_sms, cudaStream_t stream) {
  using Kernel = typename Product<Shape, ColumnMajor, RowMajor, Bf16, WeightVisitor, void,
                                  ColumnMajor>::Kernel;
  const WeightParams visitor{g.first_token, static_cast<std::uint16_t*>(g.lower), g.alpha, g.hidden,
                             g.cols < g.rows};
  return launch_product<Shape, Kernel>(product_of(g, num_sms), visitor, stream);
}

}  // namespace

cudaError_t launch_grad_weight(const GradWeight& g, int num_sms, cudaStream_t stream) {
  return is_slab_tile_better(g.hidden, g.cols, num_sms)
             ? launch<SlabWeightShape>(g, num_sms, stream)
             : launch<GradientShape>(g, num_sms, stream);
}

}  // namespace flce::cuda::hopper
