// SPDX-License-Identifier: Apache-2.0
#include "kernels/hopper/target_terms.cuh"
#include "kernels/hopper/tiles.hpp"

namespace flce::cuda::hopper {

cudaError_t launch_grad_hidden(const GradHidden& g, int num_sms, cudaStream_t stream) {
  using Kernel = Product<GradHiddenShape, RowMajor, RowMajor, Bf16, HiddenVisitor>::Kernel;
  ProductArgs product;
  product.m = g.rows;
  product.n = g.hidden;
  product.k = g.cols;
  product.a = g.e;
  product.b = g.w;
  product.d = g.out;
  product.d_row_stride = g.out_row_stride;
  product.num_sms = num_sms;
  const HiddenParams visitor{g.tokens.row_scale,
                             g.tokens.target_term,
                             g.tokens.target,
                             g.alpha,
                             static_cast<const __nv_bfloat16*>(g.w.data),
                             g.w.row_stride};
  return launch_product<GradHiddenShape, Kernel>(product, visitor, stream);
}

}  // namespace flce::cuda::hopper
