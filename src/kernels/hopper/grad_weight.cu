// SPDX-License-Identifier: Apache-2.0
#include "kernels/hopper/target_terms.cuh"
#include "kernels/hopper/tiles.hpp"

namespace flce::cuda::hopper {

cudaError_t launch_grad_weight(const GradWeight& g, int num_sms, cudaStream_t stream) {
  using Kernel = Product<GradWeightShape, ColumnMajor, RowMajor, Bf16, WeightVisitor>::Kernel;
  ProductArgs product;
  product.m = g.cols;
  product.n = g.hidden;
  product.k = g.rows;
  product.a = g.e;
  product.b = g.xs;
  product.d = g.out;
  product.d_row_stride = g.out_row_stride;
  product.num_sms = num_sms;
  const WeightParams visitor{g.first_token, static_cast<std::uint16_t*>(g.lower), g.alpha, g.hidden,
                             g.cols < g.rows};
  return launch_product<GradWeightShape, Kernel>(product, visitor, stream);
}

}  // namespace flce::cuda::hopper
