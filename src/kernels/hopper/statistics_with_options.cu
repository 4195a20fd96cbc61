// SPDX-License-Identifier: Apache-2.0
#include "kernels/hopper/launch_exponentials.cuh"
#include "kernels/hopper/options.cuh"

namespace flce::cuda::hopper {

cudaError_t launch_statistics_with_options(const Exponentials& args, int num_sms,
                                           cudaStream_t stream) {
  return launch<void, OptionsVisitor<false>>(args, options_params_of(args), num_sms, stream);
}

}  // namespace flce::cuda::hopper
