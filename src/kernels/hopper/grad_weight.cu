// SPDX-License-Identifier: Apache-2.0
#include "kernels/hopper/target_terms.cuh"
#include "kernels/hopper/tiles.hpp"

namespace flce::cuda::hopper {

namespace {

template <bool kJoins>
cudaError_t launch(const GradWeight& g, int num_sms, cudaStream_t stream) {
  using Visitor = WeightVisitor<kJoins>;
  using Kernel = typename Product<GradWeightShape, ColumnMajor, RowMajor, Bf16, Visitor>::Kernel;
  ProductArgs product;
  product.m = g.cols;
  product.n = g.hidden;
  product.k = g.rows;
  product.a = g.e;
  product.b = g.xs;
  product.d = g.out;
  product.d_row_stride = g.out_row_stride;
  product.num_sms = num_sms;
  const WeightParams visitor{
      g.sum_of, g.target_sums, g.alpha, static_cast<const std::uint16_t*>(g.out), g.out_row_stride,
      g.lower,  g.hidden,      g.turn};
  return launch_product<GradWeightShape, Kernel>(product, visitor, stream);
}

}  // namespace

cudaError_t launch_grad_weight(const GradWeight& g, int num_sms, cudaStream_t stream) {
  return g.turn == WeightTurn::kWrite ? launch<false>(g, num_sms, stream)
                                      : launch<true>(g, num_sms, stream);
}

}  // namespace flce::cuda::hopper
