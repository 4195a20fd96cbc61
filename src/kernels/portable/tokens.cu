// SPDX-License-Identifier: Apache-2.0
// What is done once a token or once a call: targets, small vectors, results and coefficients from
// statistics, the reduced loss. A single block where a sum must have one order; such a sum costs a
// few microseconds beside products of milliseconds.
#include "kernels/portable/row_math.cuh"
#include "kernels/portable/token_math.cuh"

namespace flce::cuda {
namespace {

constexpr int kOneBlock = 1024;
constexpr int kThreads = 128;

// The sum (or maximum, minimum: `join`) over the threads of a block, in one order.
template <typename T, typename Join>
__device__ inline T block_join(T value, T* scratch, Join join) {
  __syncthreads();
  scratch[threadIdx.x] = value;
  __syncthreads();
  for (unsigned half = blockDim.x / 2; half > 0; half /= 2) {
    if (threadIdx.x < half) {
      scratch[threadIdx.x] = join(scratch[threadIdx.x], scratch[threadIdx.x + half]);
    }
    __syncthreads();
  }
  return scratch[0];
}

struct Plus {
  template <typename T>
  __device__ T operator()(T a, T b) const {
    return a + b;
  }
};
struct Smaller {
  template <typename T>
  __device__ T operator()(T a, T b) const {
    return b < a ? b : a;
  }
};
// NaN wins: what was made of it must show.
struct Larger {
  __device__ double operator()(double a, double b) const { return b > a || b != b ? b : a; }
};

template <typename Acc>
__global__ void widen_vectors(const __grid_constant__ Call call) {
  const std::int64_t j = blockIdx.x * std::int64_t{blockDim.x} + threadIdx.x;
  if (j >= call.vocab) return;
  if (call.bias != nullptr) {
    static_cast<Acc*>(call.bias)[j] = static_cast<Acc>(load_real(call.bias_in, j));
  }
  if (call.class_weight != nullptr) {
    static_cast<Acc*>(call.class_weight)[j] =
        static_cast<Acc>(load_real(call.class_weight_in, call.shard_begin + j));
  }
}

// The target of a token as a row of the whole head, kIgnored or kOutOfRange.
__device__ inline std::int64_t resolve_target(const Call& call, std::int64_t token) {
  if (!has_target(token, call.tokens, call.shift, call.sequence_length)) return kIgnored;
  const std::int64_t given = load_integer(call.target, token + call.shift);
  if (given == call.ignore_index) return kIgnored;
  return given >= 0 && given < call.vocab_total ? given : kOutOfRange;
}

__global__ void resolve_targets(const __grid_constant__ Call call) {
  const std::int64_t i = blockIdx.x * std::int64_t{blockDim.x} + threadIdx.x;
  if (i >= call.tokens) return;
  TokenState state;
  state.target = resolve_target(call, i);
  call.states[i] = state;
}

__global__ void __launch_bounds__(kOneBlock) count_targets(const __grid_constant__ Call call) {
  __shared__ double sums[kOneBlock];
  __shared__ long long counts[kOneBlock];
  double target_weights = 0.0;
  long long num_valid = 0;
  long long num_out = 0;
  long long bad_token = call.tokens;
  for (std::int64_t i = threadIdx.x; i < call.tokens; i += kOneBlock) {
    const std::int64_t target = call.states[i].target;
    if (target == kIgnored) continue;
    if (target == kOutOfRange) {
      num_out += 1;
      bad_token = i < bad_token ? i : bad_token;
      continue;
    }
    num_valid += 1;
    target_weights += class_weight_of(call, target);
  }
  double class_weights = 0.0;
  if (call.class_weight_in.dtype != Dtype::kNone) {
    for (std::int64_t j = threadIdx.x; j < call.vocab_total; j += kOneBlock) {
      class_weights += load_real(call.class_weight_in, j);
    }
  }
  target_weights = block_join(target_weights, sums, Plus{});
  class_weights = block_join(class_weights, sums, Plus{});
  num_valid = block_join(num_valid, counts, Plus{});
  num_out = block_join(num_out, counts, Plus{});
  bad_token = block_join(bad_token, counts, Smaller{});
  if (threadIdx.x != 0) return;
  Totals totals;
  totals.class_weight_sum = call.class_weight_in.dtype != Dtype::kNone
                                ? class_weights
                                : static_cast<double>(call.vocab_total);
  totals.target_weight_sum = target_weights;
  totals.num_valid = num_valid;
  totals.num_out_of_range = num_out;
  if (num_out > 0) {
    totals.bad_token = bad_token + call.shift;
    totals.bad_target = load_integer(call.target, bad_token + call.shift);
  }
  *call.totals = totals;
}

// f16 has 5 bits of exponent: gradients of a mean over many tokens would vanish in it. They are
// stored times a power of two that brings the largest possible one to 2^13 .. 2^14, a quarter of
// what f16 holds; with a z-loss, whose factor 2 * lambda * L is not known here, to 2^7 .. 2^8. Of
// the entropy |p (log p + H)| is at most log V + 1, which is below 16 for any head.
__global__ void __launch_bounds__(kOneBlock) gradient_scale(const __grid_constant__ Call call) {
  __shared__ double scratch[kOneBlock];
  const LossParams params = loss_params(call);
  const double smooth = params.label_smoothing / params.vocab * params.class_weight_sum;
  double largest = 0.0;
  for (std::int64_t i = threadIdx.x; i < call.tokens; i += kOneBlock) {
    const std::int64_t target = call.states[i].target;
    if (target < 0) continue;
    const double weight = (1.0 - params.label_smoothing) * class_weight_of(call, target) + smooth;
    const double size =
        (fabs(upstream_of(call, i) * weight) + 16.0 * fabs(grad_entropy_of(call, i))) /
        temperature_of(call, i);
    if (isfinite(size)) largest = Larger{}(largest, size);
  }
  largest = block_join(largest, scratch, Larger{});
  if (threadIdx.x != 0) return;
  int exponent = 0;
  if (largest > 0.0) frexp(largest, &exponent);  // largest = m * 2^exponent, 0.5 <= m < 1
  // The products' factor is a float: keep the power where its inverse is one.
  exponent = max(-100, min(100, (params.z_loss != 0.0 ? 8 : 14) - exponent));
  GradientScale scale;
  scale.power = ldexp(1.0, exponent);
  scale.alpha = static_cast<float>(ldexp(call.scale, -exponent));
  *call.gradient_scale = scale;
}

__global__ void combine(const __grid_constant__ Call call, std::int64_t first, std::int64_t count) {
  const std::int64_t i = blockIdx.x * std::int64_t{blockDim.x} + threadIdx.x;
  if (i >= count) return;
  const std::int64_t token = first + i;
  TokenState state = call.states[token];
  if (state.target < 0) {
    store_no_target(call, token, state);
  } else {
    store_token(call, token, state);
  }
  call.states[token].loss = state.loss;
  call.states[token].z_part = state.z_part;
}

__global__ void coefficients(const __grid_constant__ Call call, std::int64_t first,
                             std::int64_t count) {
  const std::int64_t i = blockIdx.x * std::int64_t{blockDim.x} + threadIdx.x;
  if (i >= count) return;
  const TokenState& state = call.states[first + i];
  TokenGradient g = factors_of_token(call, first + i, state.target);
  if (state.target >= 0) add_statistics(state.stats, loss_params(call), g);
  call.gradients[first + i] = g;
}

__global__ void token_factors(const __grid_constant__ Call call, std::int64_t first,
                              std::int64_t count) {
  const std::int64_t i = blockIdx.x * std::int64_t{blockDim.x} + threadIdx.x;
  if (i >= count) return;
  call.gradients[first + i] = factors_of_token(call, first + i, call.states[first + i].target);
}

__global__ void __launch_bounds__(kOneBlock) reduce_loss(const __grid_constant__ Call call) {
  __shared__ double sums[kOneBlock];
  __shared__ long long counts[kOneBlock];
  double loss = 0.0;
  double z_part = 0.0;
  long long num_correct = 0;
  for (std::int64_t i = threadIdx.x; i < call.tokens; i += kOneBlock) {
    const TokenState& state = call.states[i];
    if (state.target == kIgnored) continue;
    loss += state.loss;
    z_part += state.z_part;
    num_correct += state.target >= 0 && state.stats.best_index == state.target;
  }
  loss = block_join(loss, sums, Plus{});
  z_part = block_join(z_part, sums, Plus{});
  num_correct = block_join(num_correct, counts, Plus{});
  if (threadIdx.x != 0) return;
  call.totals->loss_sum = loss;
  call.totals->z_sum = z_part;
  call.totals->num_correct = num_correct;
  const std::int64_t num_valid = call.totals->num_valid;
  store_integer(call.num_correct, 0, num_correct);
  store_integer(call.num_valid, 0, num_valid);
  if (call.reduction == Reduction::kNone) return;
  double divisor = divisor_of(call);
  // Without a valid token a mean is NaN, as in PyTorch, and any other sum is 0.
  if (num_valid == 0 && call.reduction == Reduction::kSum) divisor = 1.0;
  store_real(call.loss, 0, loss / divisor);
  store_real(call.z_part, 0, z_part / divisor);
}

__global__ void export_stats(const __grid_constant__ Call call, std::int64_t first,
                             std::int64_t count, RowStats* to) {
  const std::int64_t i = blockIdx.x * std::int64_t{blockDim.x} + threadIdx.x;
  if (i < count) to[i] = call.states[first + i].stats;
}

__global__ void merge_stats(const __grid_constant__ Call call, std::int64_t first,
                            std::int64_t count, const RowStats* gathered, int num_shards) {
  const std::int64_t i = blockIdx.x * std::int64_t{blockDim.x} + threadIdx.x;
  if (i >= count) return;
  RowStats sum;
  for (int shard = 0; shard < num_shards; ++shard) merge(sum, gathered[shard * count + i]);
  call.states[first + i].stats = sum;
}

}  // namespace

void launch_widen_vectors(const Call& call, cudaStream_t stream) {
  if (call.bias == nullptr && call.class_weight == nullptr) return;
  const unsigned blocks = blocks_for(call.vocab, kThreads);
  const auto kernel = call.is_f64 ? widen_vectors<double> : widen_vectors<float>;
  kernel<<<blocks, kThreads, 0, stream>>>(call);
}

void launch_scan_targets(const Call& call, cudaStream_t stream) {
  if (call.tokens > 0) {
    resolve_targets<<<blocks_for(call.tokens, kThreads), kThreads, 0, stream>>>(call);
  }
  count_targets<<<1, kOneBlock, 0, stream>>>(call);
}

void launch_gradient_scale(const Call& call, cudaStream_t stream) {
  gradient_scale<<<1, kOneBlock, 0, stream>>>(call);
}

void launch_combine(const Call& call, std::int64_t first, std::int64_t count, cudaStream_t stream) {
  if (count <= 0) return;
  combine<<<blocks_for(count, kThreads), kThreads, 0, stream>>>(call, first, count);
}

void launch_coefficients(const Call& call, std::int64_t first, std::int64_t count,
                         cudaStream_t stream) {
  if (count <= 0) return;
  coefficients<<<blocks_for(count, kThreads), kThreads, 0, stream>>>(call, first, count);
}

void launch_token_factors(const Call& call, std::int64_t first, std::int64_t count,
                          cudaStream_t stream) {
  if (count <= 0) return;
  token_factors<<<blocks_for(count, kThreads), kThreads, 0, stream>>>(call, first, count);
}

void launch_reduce_loss(const Call& call, cudaStream_t stream) {
  reduce_loss<<<1, kOneBlock, 0, stream>>>(call);
}

void launch_export_stats(const Call& call, std::int64_t first, std::int64_t count, RowStats* to,
                         cudaStream_t stream) {
  if (count <= 0) return;
  export_stats<<<blocks_for(count, kThreads), kThreads, 0, stream>>>(call, first, count, to);
}

void launch_merge_stats(const Call& call, std::int64_t first, std::int64_t count,
                        const RowStats* gathered, int num_shards, cudaStream_t stream) {
  if (count <= 0) return;
  merge_stats<<<blocks_for(count, kThreads), kThreads, 0, stream>>>(call, first, count, gathered,
                                                                    num_shards);
}

}  // namespace flce::cuda
