// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "kernels/hopper/exponentials.cuh"
#include "kernels/hopper/tiles.hpp"

namespace flce::cuda::hopper {

// `Out` void: the exponentials are not stored.
template <typename Out>
cudaError_t launch(const Exponentials& e, int num_sms, cudaStream_t stream) {
  using Kernel =
      typename Product<ExponentialsShape, RowMajor, ColumnMajor, Out, ExponentialsVisitor>::Kernel;
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
  const ExponentialsParams visitor{e.tokens.factor, e.tokens.offset, e.tokens.target,
                                   e.first_col,     e.parts,         e.part_stride};
  return launch_product<ExponentialsShape, Kernel>(product, visitor, stream);
}

}  // namespace flce::cuda::hopper
