// SPDX-License-Identifier: Apache-2.0
#include "kernels/hopper/target_terms.cuh"
#include "kernels/hopper/tiles.hpp"

namespace flce::cuda::hopper {

namespace {

template <typename Shape>
cudaError_t launch(const GradHidden& g, int num_sms, cudaStream_t stream) {
  using Kernel = typename Product<Shape, ColumnMajor, ColumnMajor, Bf16, HiddenVisitor, Bf16,
                                  ColumnMajor>::Kernel;
  const HiddenParams visitor{g.tokens.row_scale, g.tokens.target_term, g.alpha,
                             g.smoothing.token_term, g.smoothing.class_sum};
  return launch_product<Shape, Kernel>(product_of(g, num_sms), visitor, stream);
}

}  // namespace

cudaError_t launch_grad_hidden(const GradHidden& g, int num_sms, cudaStream_t stream) {
  if (g.parts.count > 1) return launch<PartsShape>(g, num_sms, stream);
  return is_wide_better(g.hidden, g.rows, num_sms) ? launch<WideShape>(g, num_sms, stream)
                                                   : launch<TileShape>(g, num_sms, stream);
}

}  // namespace flce::cuda::hopper
