// SPDX-License-Identifier: Apache-2.0
// Logits become their gradient: one row of f32 logits is read once, its statistics, its loss and
// its coefficients are made, and the gradient is written in its place, rounded once to the
// problem's type. Floor: 4 bytes read and 2 written for each logit of a 16-bit problem.
//
// A row waits in shared memory between its two uses. One that is too long for a block is cut into
// the slices of a cluster of up to eight blocks, which exchange their statistics (RowStats) through
// each other's shared memory; the reduced occupancy of large slices is avoided by preferring more
// blocks over larger slices. Where that is impossible (cards before compute capability 9.0, f64, V
// beyond eight slices) a block reads its row twice, the second time mostly from the L2 cache.
//
// In place: gradient j of a row stands at j * sizeof(gradient), where logits up to j stood, so a
// block may write only behind what all its threads, and all slices, have read.
#include <cooperative_groups.h>

#include "kernels/portable/row_math.cuh"
#include "kernels/portable/token_math.cuh"

namespace flce::cuda {
namespace {

namespace cg = cooperative_groups;

constexpr int kThreads = 512;
// A slice of this many bytes leaves room for three blocks on a multiprocessor, so that one block
// loads or stores while another one sums up.
constexpr int kSliceBytes = 72 << 10;
constexpr int kMaxCluster = 8;

// The blocks that share a row. Of code for cards without clusters it is one.
struct RowCluster {
#if __CUDA_ARCH__ >= 900
  __device__ unsigned rank() const { return cg::this_cluster().block_rank(); }
  __device__ unsigned size() const { return cg::this_cluster().num_blocks(); }
  __device__ void sync() const { cg::this_cluster().sync(); }
  // Between these two no block of the cluster leaves.
  __device__ void arrive() const { cg::this_cluster().barrier_arrive(); }
  __device__ void wait() const { cg::this_cluster().barrier_wait(); }
  __device__ RowStats read(RowStats* shared, unsigned from) const {
    return *cg::this_cluster().map_shared_rank(shared, from);
  }
#else
  __device__ unsigned rank() const { return 0; }
  __device__ unsigned size() const { return 1; }
  __device__ void sync() const { __syncthreads(); }
  __device__ void arrive() const {}
  __device__ void wait() const {}
  __device__ RowStats read(RowStats* shared, unsigned) const { return *shared; }
#endif
};

struct Shared {
  StatsScratch scratch;
  RowStats slice;
  RowStats row;
  TokenGradient gradient;
};

// The first column of each slice is a multiple of 8: 16-byte pieces of either type.
__device__ inline void slice_of(std::int64_t cols, unsigned rank, unsigned size,
                                std::int64_t& begin, std::int64_t& end) {
  const std::int64_t width = ((cols + size - 1) / size + 7) / 8 * 8;
  begin = min(cols, rank * width);
  end = min(cols, begin + width);
}

template <typename T>
__device__ inline void zero_slice(T* row, std::int64_t begin, std::int64_t end) {
  for (std::int64_t j = begin + threadIdx.x; j < end; j += blockDim.x) row[j] = round_to<T>(0.0);
}

// Reads logits [begin, end), adds the bias, keeps them in `resident` where there is one.
template <typename Acc, bool kFull, bool kResident>
__device__ inline ColumnStats<Acc, kFull> read_slice(const Call& call, const Acc* row,
                                                     std::int64_t begin, std::int64_t end,
                                                     std::int64_t target_col,
                                                     const LogitMap<Acc, kFull>& map,
                                                     Acc* resident) {
  constexpr int kCount = Piece<Acc>::kCount;
  const auto* weights = static_cast<const Acc*>(call.class_weight);
  ColumnStats<Acc, kFull> stats;
#pragma unroll 4
  for (std::int64_t j = begin + kCount * threadIdx.x; j < end; j += kCount * kThreads) {
    Piece<Acc> z;
    const int count = end - j < kCount ? static_cast<int>(end - j) : kCount;
    if (count == kCount) {
      z = *reinterpret_cast<const Piece<Acc>*>(row + j);
    } else {
      for (int i = 0; i < kCount; ++i) z.value[i] = i < count ? row[j + i] : Acc(0);
    }
    Acc u[kCount];
#pragma unroll
    for (int i = 0; i < kCount; ++i) {
      if (i < count) z.value[i] = map.with_bias(z.value[i], j + i);
      u[i] = map.u(z.value[i]);
      if (kFull && i < count && j + i == target_col) stats.target_slope = map.slope(z.value[i]);
    }
    if (kResident) *reinterpret_cast<Piece<Acc>*>(resident + (j - begin)) = z;
    stats.add(u, count, j, target_col, weights, call.wants_best);
  }
  if (!kFull) stats.target_slope = 1;
  return stats;
}

// Gradients [begin, end) from the resident logits.
template <typename Acc, typename T, bool kFull>
__device__ inline void write_resident(const Call& call, const Acc* resident, T* row,
                                      std::int64_t begin, std::int64_t end,
                                      const Coefficients<Acc>& c,
                                      const LogitMap<Acc, kFull>& map) {
  constexpr int kCount = Piece<T>::kCount;
  const auto* weights = static_cast<const Acc*>(call.class_weight);
#pragma unroll 2
  for (std::int64_t j = begin + kCount * threadIdx.x; j < end; j += kCount * kThreads) {
    Piece<T> g;
#pragma unroll
    for (int i = 0; i < kCount; ++i) {
      const Acc z = resident[j - begin + i];
      g.value[i] = round_to<T>(j + i < end ? c.template gradient<kFull>(z, j + i, map, weights)
                                           : Acc(0));
    }
    if (j + kCount <= end) {
      *reinterpret_cast<Piece<T>*>(row + j) = g;
    } else {
      for (int i = 0; j + i < end; ++i) row[j + i] = g.value[i];
    }
  }
}

// The same from the logits in memory, read again: a barrier between a step's reads and its writes
// keeps the writes, which are at most as wide, behind every read that is still to come.
template <typename Acc, typename T, bool kFull>
__device__ inline void write_streaming(const Call& call, const Acc* from, T* row,
                                       std::int64_t cols, const Coefficients<Acc>& c,
                                       const LogitMap<Acc, kFull>& map) {
  const auto* weights = static_cast<const Acc*>(call.class_weight);
  for (std::int64_t base = 0; base < cols; base += kThreads) {
    const std::int64_t j = base + threadIdx.x;
    T g = round_to<T>(0.0);
    if (j < cols) {
      g = round_to<T>(c.template gradient<kFull>(map.with_bias(from[j], j), j, map, weights));
    }
    __syncthreads();
    if (j < cols) row[j] = g;
  }
}

// Statistics of the whole row, the token's outputs and its coefficients, in `shared`.
template <typename Acc, bool kFull>
__device__ inline void finish_row(const Call& call, std::int64_t token,
                                  const ColumnStats<Acc, kFull>& stats, const RowCluster& cluster,
                                  Shared& shared) {
  const RowStats slice = merge_block(stats, shared.scratch);
  if (threadIdx.x == 0) shared.slice = slice;
  cluster.sync();  // all slices are read, and their statistics can be
  if (threadIdx.x < kWarp) {
    const RowStats mine =
        threadIdx.x < cluster.size() ? cluster.read(&shared.slice, threadIdx.x) : RowStats{};
    TokenState state;
    state.stats = merge_lanes(mine);
    if (!kFull) state.stats.target_slope = 1.0;
    if (threadIdx.x == 0) {
      state.target = call.states[token].target;
      if (cluster.rank() == 0) {
        store_token(call, token, state);
        call.states[token] = state;
      }
      shared.gradient = gradient_of_token(call, token, state);
    }
  }
  __syncthreads();
  cluster.arrive();  // this block has read the others' statistics
}

template <typename Acc, typename T, bool kFull, bool kResident>
__global__ void __launch_bounds__(kThreads) fused_rows(const __grid_constant__ Call call,
                                                       LogitBlock block) {
  extern __shared__ __align__(16) unsigned char resident_bytes[];
  __shared__ Shared shared;
  const RowCluster cluster;
  const std::int64_t row = blockIdx.x / cluster.size();
  const std::int64_t token = block.first_token + row;
  Acc* const logits = static_cast<Acc*>(block.data) + row * block.row_stride;
  T* const gradient = reinterpret_cast<T*>(logits);
  std::int64_t begin, end;
  slice_of(block.cols, cluster.rank(), cluster.size(), begin, end);

  const std::int64_t target = call.states[token].target;
  if (target < 0) {  // of the whole cluster: nothing of the row is looked at
    zero_slice(gradient, begin, end);
    if (cluster.rank() == 0 && threadIdx.x == 0) {
      store_no_target(call, token, call.states[token]);
      call.gradients[token].is_active = 0;
    }
    return;
  }
  auto* const resident = reinterpret_cast<Acc*>(resident_bytes);
  const auto map = map_of<Acc, kFull>(call, temperature_of(call, token));
  const auto stats = read_slice<Acc, kFull, kResident>(call, logits, begin, end,
                                                       target - call.shard_begin, map, resident);
  finish_row(call, token, stats, cluster, shared);
  const Coefficients<Acc> c(shared.gradient);
  if (cluster.rank() == 0 && threadIdx.x == 0) call.gradients[token] = shared.gradient;
  if (shared.gradient.is_active == 0) {
    zero_slice(gradient, begin, end);
  } else if (kResident) {
    write_resident<Acc, T, kFull>(call, resident, gradient, begin, end, c, map);
  } else {
    write_streaming<Acc, T, kFull>(call, logits, gradient, end, c, map);
  }
  cluster.wait();  // no block leaves while another one reads its statistics
}

// How many blocks share a row, and how much of it each holds; 0 bytes: none of it.
struct RowShape {
  int cluster = 1;
  int resident_bytes = 0;
};

RowShape row_shape(std::int64_t cols, int acc_size, const RowDevice& device) {
  const std::int64_t room = device.shared_bytes - static_cast<int>(sizeof(Shared)) - 1024;
  const int most = device.has_clusters ? kMaxCluster : 1;
  for (int size = 1; size <= most; size *= 2) {
    const std::int64_t bytes = ((cols + size - 1) / size + 7) / 8 * 8 * acc_size;
    const bool fits = bytes <= (size == most ? room : (kSliceBytes < room ? kSliceBytes : room));
    if (fits) return {size, static_cast<int>(bytes)};
  }
  return {};
}

template <typename Kernel>
void launch(Kernel kernel, const Call& call, const LogitBlock& logits, const RowShape& shape,
            cudaStream_t stream) {
  cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, shape.resident_bytes);
  cudaLaunchConfig_t config = {};
  config.gridDim = dim3(static_cast<unsigned>(logits.rows * shape.cluster));
  config.blockDim = dim3(kThreads);
  config.dynamicSmemBytes = static_cast<std::size_t>(shape.resident_bytes);
  config.stream = stream;
  cudaLaunchAttribute attribute = {};
  attribute.id = cudaLaunchAttributeClusterDimension;
  attribute.val.clusterDim.x = static_cast<unsigned>(shape.cluster);
  attribute.val.clusterDim.y = 1;
  attribute.val.clusterDim.z = 1;
  config.attrs = &attribute;
  config.numAttrs = shape.cluster > 1 ? 1 : 0;
  cudaLaunchKernelEx(&config, kernel, call, logits);
}

template <typename Acc, typename T>
void launch_typed(const Call& call, const LogitBlock& logits, const RowShape& shape,
                  cudaStream_t stream) {
  const bool full = needs_full(call);
  if (shape.resident_bytes > 0) {
    launch(full ? fused_rows<Acc, T, true, true> : fused_rows<Acc, T, false, true>, call, logits,
           shape, stream);
  } else {
    launch(full ? fused_rows<Acc, T, true, false> : fused_rows<Acc, T, false, false>, call, logits,
           shape, stream);
  }
}

}  // namespace

RowDevice row_device() {
  RowDevice device;
  int index = 0;
  int major = 0;
  cudaGetDevice(&index);
  cudaDeviceGetAttribute(&device.num_sms, cudaDevAttrMultiProcessorCount, index);
  cudaDeviceGetAttribute(&device.shared_bytes, cudaDevAttrMaxSharedMemoryPerBlockOptin, index);
  cudaDeviceGetAttribute(&major, cudaDevAttrComputeCapabilityMajor, index);
  cudaFuncAttributes code = {};
  cudaFuncGetAttributes(&code, fused_rows<float, BF16, false, true>);
  // Code that the driver made from the PTX of an older architecture has no clusters in it.
  device.has_clusters = major >= 9 && code.ptxVersion >= 90;
  return device;
}

void launch_fused_rows(const Call& call, const LogitBlock& logits, const RowDevice& device,
                       cudaStream_t stream) {
  if (logits.rows <= 0) return;
  const RowShape shape = row_shape(logits.cols, call.is_f64 ? 8 : 4, device);
  visit_dtype(call.dtype, [&](auto type) {
    using T = typename decltype(type)::type;
    launch_typed<AccOf<T>, T>(call, logits, shape, stream);
  });
}

}  // namespace flce::cuda
