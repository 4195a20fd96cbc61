// SPDX-License-Identifier: Apache-2.0
// The passes of the eager variants, each over whole tensors, as the code that people run has them.
// Baselines: they must not be clever. Tensors are (rows, V), contiguous.
#include "kernels/portable/row_math.cuh"
#include "kernels/portable/token_math.cuh"

namespace flce::cuda {
namespace {

constexpr int kThreads = 256;

template <typename From, typename To>
__global__ void convert(const From* from, To* to, std::int64_t count) {
  for (std::int64_t i = blockIdx.x * std::int64_t{blockDim.x} + threadIdx.x; i < count;
       i += std::int64_t{gridDim.x} * blockDim.x) {
    to[i] = round_to<To>(widen(from[i]));
  }
}

template <typename Acc>
__global__ void __launch_bounds__(kThreads)
    eager_logprobs(const Acc* copy, Acc* logprobs, std::int64_t cols) {
  __shared__ ColumnStats<Acc, true> of_warp[kThreads / kWarp];
  __shared__ Acc lse;
  const Acc* from = copy + blockIdx.x * cols;
  Acc* to = logprobs + blockIdx.x * cols;
  const LogitMap<Acc, true> map;
  ColumnStats<Acc, true> stats;
  for (std::int64_t j = threadIdx.x; j < cols; j += kThreads) {
    Acc v[kQuad] = {from[j]};
    stats.add(v, 1, j, -1, map, nullptr, false);
  }
  stats = merge_block<kThreads>(stats, of_warp);
  if (threadIdx.x == 0) {
    const RowStats row = row_stats_of(stats, map, false);
    lse = static_cast<Acc>(row.max + log(row.others));
  }
  __syncthreads();
  for (std::int64_t j = threadIdx.x; j < cols; j += kThreads) to[j] = from[j] - lse;
}

template <typename Acc>
__global__ void eager_losses(const __grid_constant__ Call call, const Acc* logprobs,
                             std::int64_t first_token, std::int64_t rows) {
  const std::int64_t i = blockIdx.x * std::int64_t{blockDim.x} + threadIdx.x;
  if (i >= rows) return;
  TokenState& state = call.states[first_token + i];
  if (state.target < 0) {
    store_no_target(call, first_token + i, state);
    return;
  }
  state.loss = -static_cast<double>(logprobs[i * call.vocab + state.target]);
  state.z_part = 0.0;
  if (call.reduction == Reduction::kNone) store_real(call.loss, first_token + i, state.loss);
}

template <typename Acc>
__global__ void __launch_bounds__(kThreads)
    eager_gradient(const __grid_constant__ Call call, const Acc* logprobs, Acc* gradient,
                   std::int64_t first_token) {
  const std::int64_t token = first_token + blockIdx.x;
  const std::int64_t target = call.states[token].target;
  const Acc* from = logprobs + blockIdx.x * call.vocab;
  Acc* to = gradient + blockIdx.x * call.vocab;
  const Acc factor = target < 0 ? Acc(0) : static_cast<Acc>(upstream_of(call, token));
  for (std::int64_t j = threadIdx.x; j < call.vocab; j += kThreads) {
    const Acc p = exp_of(from[j]) - (j == target ? Acc(1) : Acc(0));
    to[j] = target < 0 ? Acc(0) : p * factor;
  }
}

unsigned stream_blocks(std::int64_t count) { return blocks_for(count, 4 * kThreads, 1 << 16); }

}  // namespace

void launch_eager_copy(const Call& call, const void* logits, void* copy, std::int64_t count,
                       cudaStream_t stream) {
  visit_real(call.dtype, [&](auto type) {
    using T = typename decltype(type)::type;
    convert<T, AccOf<T>><<<stream_blocks(count), kThreads, 0, stream>>>(
        static_cast<const T*>(logits), static_cast<AccOf<T>*>(copy), count);
  });
}

void launch_eager_logprobs(const Call& call, const void* copy, void* logprobs, std::int64_t rows,
                           cudaStream_t stream) {
  visit_real(call.is_f64 ? Dtype::kF64 : Dtype::kF32, [&](auto type) {
    using Acc = AccOf<typename decltype(type)::type>;
    eager_logprobs<Acc><<<static_cast<unsigned>(rows), kThreads, 0, stream>>>(
        static_cast<const Acc*>(copy), static_cast<Acc*>(logprobs), call.vocab);
  });
}

void launch_eager_losses(const Call& call, const void* logprobs, std::int64_t first_token,
                         std::int64_t rows, cudaStream_t stream) {
  visit_real(call.is_f64 ? Dtype::kF64 : Dtype::kF32, [&](auto type) {
    using Acc = AccOf<typename decltype(type)::type>;
    eager_losses<Acc><<<blocks_for(rows, kThreads), kThreads, 0, stream>>>(
        call, static_cast<const Acc*>(logprobs), first_token, rows);
  });
}

void launch_eager_gradient(const Call& call, const void* logprobs, void* gradient,
                           std::int64_t first_token, std::int64_t rows, cudaStream_t stream) {
  visit_real(call.is_f64 ? Dtype::kF64 : Dtype::kF32, [&](auto type) {
    using Acc = AccOf<typename decltype(type)::type>;
    eager_gradient<Acc><<<static_cast<unsigned>(rows), kThreads, 0, stream>>>(
        call, static_cast<const Acc*>(logprobs), static_cast<Acc*>(gradient), first_token);
  });
}

void launch_eager_round(const Call& call, const void* gradient, void* rounded, std::int64_t count,
                        cudaStream_t stream) {
  visit_real(call.dtype, [&](auto type) {
    using T = typename decltype(type)::type;
    convert<AccOf<T>, T><<<stream_blocks(count), kThreads, 0, stream>>>(
        static_cast<const AccOf<T>*>(gradient), static_cast<T*>(rounded), count);
  });
}

}  // namespace flce::cuda
