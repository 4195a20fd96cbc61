// SPDX-License-Identifier: Apache-2.0
#include "kernels/hopper/split_sums.cuh"
#include "kernels/hopper/tiles.hpp"

namespace flce::cuda::hopper {

cudaError_t launch_sum_grad_weight(const GradWeight& g, const Halves& sum, bool is_first,
                                   bool is_last, int num_sms, cudaStream_t stream) {
  ProductArgs product;
  product.m = g.cols;
  product.n = g.hidden;
  product.k = g.rows;
  product.a = g.e;
  product.b = g.xs;
  product.num_sms = num_sms;
  return launch_split_sum<SumGradWeightShape, ColumnMajor>(product, sum,
                                                           {g.alpha, is_first, is_last}, stream);
}

}  // namespace flce::cuda::hopper
