// SPDX-License-Identifier: Apache-2.0
#include "kernels/hopper/launch_exponentials.cuh"
#include "kernels/hopper/options.cuh"

namespace flce::cuda::hopper {

cudaError_t launch_statistics(const Exponentials& args, const LogitOptions& options,
                              OptionsPart* parts, int num_sms, cudaStream_t stream) {
  return launch<void, OptionsVisitor>(args, params_of(args, options, parts), num_sms, stream);
}

}  // namespace flce::cuda::hopper
