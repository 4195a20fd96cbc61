// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "kernels/hopper/tiles.hpp"

namespace flce::cuda::hopper {

// `Out` void: the exponentials are not stored.
template <typename Out, typename Visitor>
cudaError_t launch(const Exponentials& e, const typename Visitor::Params& visitor, int num_sms,
                   cudaStream_t stream) {
  using Kernel = typename Product<ExponentialsShape, RowMajor, ColumnMajor, Out, Visitor>::Kernel;
  ProductArgs product;
  product.m = e.rows;
  product.n = e.cols;
  product.k = e.hidden;
  product.a = e.x;
  product.b = e.w;
  product.d = e.e;
  product.d_row_stride = e.e_row_stride;
  product.run_if = e.run_if;
  product.num_sms = num_sms;
  return launch_product<ExponentialsShape, Kernel>(product, visitor, stream);
}

}  // namespace flce::cuda::hopper
