// SPDX-License-Identifier: Apache-2.0
#include "kernels/hopper/exponentials.cuh"
#include "kernels/hopper/launch_exponentials.cuh"

namespace flce::cuda::hopper {

cudaError_t launch_exponentials(const Exponentials& args, int num_sms, cudaStream_t stream) {
  if (args.has_options) return launch_exponentials_with_options(args, num_sms, stream);
  return launch<Bf16, ExponentialsVisitor>(args, params_of(args), num_sms, stream);
}

}  // namespace flce::cuda::hopper
