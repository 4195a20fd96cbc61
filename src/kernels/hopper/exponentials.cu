// SPDX-License-Identifier: Apache-2.0

#include "kernels/hopper/launch_exponentials.cuh"

namespace flce::cuda::hopper {

cudaError_t launch_exponentials(const Exponentials& args, int num_sms, cudaStream_t stream) {
  return launch<Bf16>(args, num_sms, stream);
}

}  // namespace flce::cuda::hopper
