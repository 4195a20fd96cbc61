// SPDX-License-Identifier: Apache-2.0
#include "kernels/hopper/target_terms.cuh"
#include "kernels/hopper/tiles.hpp"

namespace flce::cuda::hopper {

namespace {

template <typename Shape>
cudaError_t launch(const GradHidden& g, int num_sms, cudaStream_t stream) {
  using Kernel = typename Product<Shape, RowMajor, RowMajor, Bf16, HiddenVisitor>::Kernel;
  const HiddenParams visitor{g.tokens.row_scale,
                             g.tokens.target_term,
                             g.tokens.target,
                             g.alpha,
                             g.smoothing.token_term,
                             g.smoothing.class_sum,
                             static_cast<const __nv_bfloat16*>(g.w.data),
                             g.w.row_stride};
  return launch_product<Shape, Kernel>(product_of(g, num_sms), visitor, stream);
}

}  // namespace

cudaError_t launch_grad_hidden(const GradHidden& g, int num_sms, cudaStream_t stream) {
  const bool is_narrow = busiest(kGradHiddenNarrowTile, g.rows, g.hidden, num_sms) <
                         busiest(kGradHiddenTile, g.rows, g.hidden, num_sms);
  return is_narrow ? launch<GradHiddenNarrowShape>(g, num_sms, stream)
                   : launch<GradHiddenShape>(g, num_sms, stream);
}

}  // namespace flce::cuda::hopper
