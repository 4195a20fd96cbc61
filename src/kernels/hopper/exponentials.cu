// SPDX-License-Identifier: Apache-2.0
#include "kernels/hopper/exponentials.cuh"
#include "kernels/hopper/launch_exponentials.cuh"

namespace flce::cuda::hopper {

int part_cols() { return ExponentialsShape::kCols; }

cudaError_t launch_exponentials(const Exponentials& args, int num_sms, cudaStream_t stream) {
  return launch<Bf16, ExponentialsVisitor>(args, params_of(args), num_sms, stream);
}

}  // namespace flce::cuda::hopper
