// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "kernels/hopper/tiles.hpp"

namespace flce::cuda::hopper {

// `Out` void: the exponentials are not stored.
template <typename Out, typename Visitor>
cudaError_t launch(const Exponentials& e, const typename Visitor::Params& visitor, int num_sms,
                   cudaStream_t stream) {
  using Kernel = typename Product<TileShape, RowMajor, ColumnMajor, Out, Visitor>::Kernel;
  return launch_product<TileShape, Kernel>(product_of(e, num_sms), visitor, stream);
}

}  // namespace flce::cuda::hopper
