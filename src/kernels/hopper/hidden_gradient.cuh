// SPDX-License-Identifier: Apache-2.0
// An element of grad_hidden from its sum over the vocabulary: alpha comes with the factors of the
// token, which are zero where it has no gradient. Zero by selection: 0 * NaN is not 0.
#pragma once

namespace flce::cuda::hopper {

// v_i * sum + t_i * W[y_i]
__device__ inline float hidden_gradient(float scale, float sum, float term, float of_target) {
  const float grad = scale != 0.0f ? scale * sum : 0.0f;
  return term != 0.0f ? fmaf(term, of_target, grad) : grad;
}
// - q_i * class_sum
__device__ inline float less_smoothing(float grad, float smoothing, float class_sum) {
  return smoothing != 0.0f ? fmaf(-smoothing, class_sum, grad) : grad;
}

}  // namespace flce::cuda::hopper
