// SPDX-License-Identifier: Apache-2.0
// Passes over matrices beside the logits: packing hidden rows, clearing rows without a gradient,
// grad_bias, rounding accumulators into the caller's memory, scaling.
#include "kernels/portable/element.cuh"

namespace flce::cuda {
namespace {

constexpr int kThreads = 256;

// One block a row. Selects rows, never multiplies them: what a skipped row holds reaches nothing.
template <typename T>
__global__ void __launch_bounds__(kThreads)
    pack_hidden(const __grid_constant__ Call call, Rows from, T* to, std::int64_t to_stride,
                std::int64_t first_token, std::int64_t cols, bool by_gradient) {
  const std::int64_t token = first_token + blockIdx.x;
  const bool is_used =
      by_gradient ? call.gradients[token].is_active != 0 : call.states[token].target >= 0;
  const T* const source = static_cast<const T*>(from.data) + token * from.row_stride;
  T* const row = to + blockIdx.x * to_stride;
  constexpr int kCount = Piece<T>::kCount;
  const bool is_aligned = reinterpret_cast<std::uintptr_t>(source) % 16 == 0;
  for (std::int64_t k = kCount * threadIdx.x; k < to_stride; k += kCount * kThreads) {
    Piece<T> piece;
    if (is_used && is_aligned && k + kCount <= cols) {
      piece = *reinterpret_cast<const Piece<T>*>(source + k);
    } else {
      for (int i = 0; i < kCount; ++i) {
        piece.value[i] = is_used && k + i < cols ? source[k + i] : round_to<T>(0.0);
      }
    }
    *reinterpret_cast<Piece<T>*>(row + k) = piece;
  }
}

template <typename T>
__global__ void __launch_bounds__(kThreads)
    clear_inactive(const __grid_constant__ Call call, T* to, std::int64_t row_stride,
                   std::int64_t first_token, std::int64_t cols) {
  const std::int64_t token = first_token + blockIdx.x;
  if (call.gradients[token].is_active != 0) return;
  T* const row = to + token * row_stride;
  for (std::int64_t k = threadIdx.x; k < cols; k += kThreads) row[k] = round_to<T>(0.0);
}

// 32 columns by 8 rows of threads; each column is summed by eight of them, then in one order.
constexpr int kSumCols = 32;
constexpr int kSumRows = 8;
template <typename T>
__global__ void column_sums(const __grid_constant__ Call call, const T* gradient,
                            std::int64_t row_stride, std::int64_t rows, std::int64_t cols,
                            bool is_first, double* acc) {
  __shared__ double parts[kSumRows][kSumCols];
  const std::int64_t j = blockIdx.x * std::int64_t{kSumCols} + threadIdx.x;
  double sum = 0.0;
  if (j < cols) {
#pragma unroll 4
    for (std::int64_t i = threadIdx.y; i < rows; i += kSumRows) {
      sum += widen(gradient[i * row_stride + j]);
    }
  }
  parts[threadIdx.y][threadIdx.x] = sum;
  __syncthreads();
  if (threadIdx.y != 0 || j >= cols) return;
  for (int r = 1; r < kSumRows; ++r) sum += parts[r][threadIdx.x];
  if (call.scales_gradient) sum /= call.gradient_scale->power;
  acc[j] = is_first ? sum : acc[j] + sum;
}

__device__ inline double load_out(const RealsOut& view, std::int64_t i) {
  return load_real({view.data, view.stride, view.dtype}, i);
}

__global__ void store_bias(const double* acc, std::int64_t count, RealsOut to, bool accumulate) {
  const std::int64_t j = blockIdx.x * std::int64_t{blockDim.x} + threadIdx.x;
  if (j >= count) return;
  store_real(to, j, accumulate ? load_out(to, j) + acc[j] : acc[j]);
}

// Rows are spread over blockIdx.y, columns over the rest, for any row stride.
template <typename From, typename To>
__global__ void __launch_bounds__(kThreads)
    store_rows(const From* from, std::int64_t from_stride, To* to, std::int64_t to_stride,
               std::int64_t rows, std::int64_t cols, bool accumulate) {
  const std::int64_t k = blockIdx.x * std::int64_t{kThreads} + threadIdx.x;
  if (k >= cols) return;
  for (std::int64_t i = blockIdx.y; i < rows; i += gridDim.y) {
    const From value = from[i * from_stride + k];
    To& target = to[i * to_stride + k];
    target = round_to<To>(accumulate ? widen(target) + value : value);
  }
}

template <typename T>
__global__ void __launch_bounds__(kThreads)
    zero_rows(T* to, std::int64_t row_stride, std::int64_t rows, std::int64_t cols) {
  const std::int64_t k = blockIdx.x * std::int64_t{kThreads} + threadIdx.x;
  if (k >= cols) return;
  for (std::int64_t i = blockIdx.y; i < rows; i += gridDim.y) {
    to[i * row_stride + k] = round_to<T>(0.0);
  }
}

template <typename T>
__global__ void __launch_bounds__(kThreads)
    scale_rows(Reals factor, T* to, std::int64_t row_stride, std::int64_t rows, std::int64_t cols) {
  const double f = load_real(factor, 0);
  const std::int64_t k = blockIdx.x * std::int64_t{kThreads} + threadIdx.x;
  if (f == 1.0 || k >= cols) return;
  for (std::int64_t i = blockIdx.y; i < rows; i += gridDim.y) {
    T& value = to[i * row_stride + k];
    value = round_to<T>(widen(value) * f);
  }
}

__global__ void scale_vector(Reals factor, RealsOut to, std::int64_t count) {
  const double f = load_real(factor, 0);
  const std::int64_t j = blockIdx.x * std::int64_t{blockDim.x} + threadIdx.x;
  if (f == 1.0 || j >= count) return;
  store_real(to, j, load_out(to, j) * f);
}

__device__ inline std::uint64_t mixed(std::uint64_t z) {  // splitmix64's output function
  z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9ULL;
  z = (z ^ (z >> 27)) * 0x94D049BB133111EBULL;
  return z ^ (z >> 31);
}

// The sum of four uniform numbers is close enough to a normal one for a measurement.
template <typename T>
__global__ void __launch_bounds__(kThreads)
    random_rows(T* to, std::int64_t row_stride, std::int64_t rows, std::int64_t cols, float size,
                std::uint64_t seed) {
  const std::int64_t k = blockIdx.x * std::int64_t{kThreads} + threadIdx.x;
  if (k >= cols) return;
  for (std::int64_t i = blockIdx.y; i < rows; i += gridDim.y) {
    const std::uint64_t bits = mixed(seed + 0x9E3779B97F4A7C15ULL * (i * cols + k + 1));
    int sum = 0;
    for (int part = 0; part < 4; ++part) sum += static_cast<int>((bits >> (16 * part)) & 0xffff);
    to[i * row_stride + k] =
        round_to<T>(static_cast<double>(size) * (sum - 2 * 65535) / 65535.0 * 1.7320508);
  }
}

template <typename Got, typename Want>
__global__ void __launch_bounds__(kThreads)
    difference(const Got* got, std::int64_t got_stride, const Want* want, std::int64_t want_stride,
               std::int64_t rows, std::int64_t cols, double* sums) {
  __shared__ double parts[2][kThreads];
  double error = 0.0;
  double size = 0.0;
  for (std::int64_t i = blockIdx.x; i < rows; i += gridDim.x) {
    for (std::int64_t k = threadIdx.x; k < cols; k += kThreads) {
      const double w = widen(want[i * want_stride + k]);
      const double g = widen(got[i * got_stride + k]);
      if (g == w || (g != g && w != w)) {  // infinities and NaN in the same place
        if (isfinite(w)) size += w * w;
        continue;
      }
      const double d = g - w;
      error += d * d;
      size += w * w;
    }
  }
  parts[0][threadIdx.x] = error;
  parts[1][threadIdx.x] = size;
  __syncthreads();
  if (threadIdx.x >= 2) return;
  double sum = 0.0;
  for (int t = 0; t < kThreads; ++t) sum += parts[threadIdx.x][t];
  sums[2 * blockIdx.x + threadIdx.x] = sum;
}

// A grid over columns and some rows.
dim3 grid_of(std::int64_t rows, std::int64_t cols) {
  return dim3(blocks_for(cols, kThreads), blocks_for(rows, 1, 4096));
}

}  // namespace

void launch_pack_hidden(const Call& call, const Rows& from, void* to, std::int64_t to_stride,
                        std::int64_t first_token, std::int64_t rows, std::int64_t cols,
                        bool by_gradient, cudaStream_t stream) {
  if (rows <= 0) return;
  visit_real(from.dtype, [&](auto type) {
    using T = typename decltype(type)::type;
    pack_hidden<T><<<static_cast<unsigned>(rows), kThreads, 0, stream>>>(
        call, from, static_cast<T*>(to), to_stride, first_token, cols, by_gradient);
  });
}

void launch_clear_inactive(const Call& call, const RowsOut& to, std::int64_t first_token,
                           std::int64_t rows, std::int64_t cols, cudaStream_t stream) {
  if (rows <= 0) return;
  visit_real(to.dtype, [&](auto type) {
    using T = typename decltype(type)::type;
    clear_inactive<T><<<static_cast<unsigned>(rows), kThreads, 0, stream>>>(
        call, static_cast<T*>(to.data), to.row_stride, first_token, cols);
  });
}

void launch_column_sums(const Call& call, const GradientBlock& gradient, std::int64_t rows,
                        std::int64_t cols, bool is_first, double* acc, cudaStream_t stream) {
  if (cols <= 0) return;
  visit_real(call.dtype, [&](auto type) {
    using T = typename decltype(type)::type;
    column_sums<T><<<blocks_for(cols, kSumCols), dim3(kSumCols, kSumRows), 0, stream>>>(
        call, static_cast<const T*>(gradient.data), gradient.row_stride, rows, cols, is_first, acc);
  });
}

void launch_store_bias(const double* acc, std::int64_t count, const RealsOut& to, bool accumulate,
                       cudaStream_t stream) {
  if (count <= 0) return;
  store_bias<<<blocks_for(count, kThreads), kThreads, 0, stream>>>(acc, count, to, accumulate);
}

void launch_store_rows(const Rows& from, const RowsOut& to, std::int64_t rows, std::int64_t cols,
                       bool accumulate, cudaStream_t stream) {
  if (rows <= 0) return;
  visit_real(to.dtype, [&](auto type) {
    using T = typename decltype(type)::type;
    using From = AccOf<T>;
    store_rows<From, T><<<grid_of(rows, cols), kThreads, 0, stream>>>(
        static_cast<const From*>(from.data), from.row_stride, static_cast<T*>(to.data),
        to.row_stride, rows, cols, accumulate);
  });
}

void launch_zero_rows(const RowsOut& to, std::int64_t rows, std::int64_t cols,
                      cudaStream_t stream) {
  if (rows <= 0 || cols <= 0) return;
  visit_real(to.dtype, [&](auto type) {
    using T = typename decltype(type)::type;
    zero_rows<T><<<grid_of(rows, cols), kThreads, 0, stream>>>(static_cast<T*>(to.data),
                                                               to.row_stride, rows, cols);
  });
}

void launch_scale_rows(const Reals& factor, const RowsOut& to, std::int64_t rows, std::int64_t cols,
                       cudaStream_t stream) {
  if (rows <= 0 || cols <= 0) return;
  visit_real(to.dtype, [&](auto type) {
    using T = typename decltype(type)::type;
    scale_rows<T><<<grid_of(rows, cols), kThreads, 0, stream>>>(factor, static_cast<T*>(to.data),
                                                                to.row_stride, rows, cols);
  });
}

void launch_scale_vector(const Reals& factor, const RealsOut& to, std::int64_t count,
                         cudaStream_t stream) {
  if (count <= 0) return;
  scale_vector<<<blocks_for(count, kThreads), kThreads, 0, stream>>>(factor, to, count);
}

void launch_random_rows(const RowsOut& to, std::int64_t rows, std::int64_t cols, float size,
                        std::uint64_t seed, cudaStream_t stream) {
  if (rows <= 0 || cols <= 0) return;
  visit_real(to.dtype, [&](auto type) {
    using T = typename decltype(type)::type;
    random_rows<T><<<grid_of(rows, cols), kThreads, 0, stream>>>(
        static_cast<T*>(to.data), to.row_stride, rows, cols, size, seed);
  });
}

void launch_difference(const Rows& got, const Rows& want, std::int64_t rows, std::int64_t cols,
                       double* sums, int blocks, cudaStream_t stream) {
  visit_real(got.dtype, [&](auto got_type) {
    using Got = typename decltype(got_type)::type;
    const auto run = [&](const auto* right) {
      difference<<<static_cast<unsigned>(blocks), kThreads, 0, stream>>>(
          static_cast<const Got*>(got.data), got.row_stride, right, want.row_stride, rows, cols,
          sums);
    };
    if (want.dtype == Dtype::kF64) {
      run(static_cast<const double*>(want.data));
    } else {
      run(static_cast<const float*>(want.data));
    }
  });
}

}  // namespace flce::cuda
