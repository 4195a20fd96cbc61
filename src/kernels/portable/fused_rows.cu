// SPDX-License-Identifier: Apache-2.0
// Logits become their gradient: one row of f32 logits is read once, its statistics and its
// coefficients are made, and the gradient is written in its place, rounded once to the problem's
// type. Floor: 4 bytes read and 2 written for each logit of a 16-bit problem.
//
// A row waits in shared memory between its two uses. One that is too long for a block is cut into
// the slices of a cluster of up to eight blocks, which exchange their statistics (RowStats) through
// each other's shared memory. Slices are kept so small that several blocks are on a multiprocessor:
// while one of them waits for its row's sum, the others load and store. Where clusters are
// impossible (cards before compute capability 9.0, V beyond eight slices) and for f64 a block reads
// its row twice, the second time mostly from the L2 cache.
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
// A slice of this many bytes leaves room for three blocks on a multiprocessor of 227 KB.
constexpr int kSliceBytes = 70 << 10;
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
  template <typename Stats>
  __device__ Stats read(Stats* shared, unsigned from) const {
    return *cg::this_cluster().map_shared_rank(shared, from);
  }
#else
  __device__ unsigned rank() const { return 0; }
  __device__ unsigned size() const { return 1; }
  __device__ void sync() const { __syncthreads(); }
  __device__ void arrive() const {}
  __device__ void wait() const {}
  template <typename Stats>
  __device__ Stats read(Stats* shared, unsigned) const {
    return *shared;
  }
#endif
};

template <typename Acc, bool kFull>
struct Shared {
  ColumnStats<Acc, kFull> of_warp[kThreads / kWarp];
  ColumnStats<Acc, kFull> slice;
  TokenGradient gradient;
  Coefficients<Acc> coefficients;
};

// Columns [begin, end) of a row; the first one is a multiple of 8: 16-byte pieces of any type.
struct Slice {
  int begin;
  int end;
};
__device__ inline Slice slice_of(std::int64_t cols, const RowCluster& cluster) {
  const int all = static_cast<int>(cols);
  const int size = static_cast<int>(cluster.size());
  const int width = ((all + size - 1) / size + 7) / 8 * 8;
  const int begin = min(all, static_cast<int>(cluster.rank()) * width);
  return {begin, min(all, begin + width)};
}

template <typename T>
__device__ inline void zero_slice(T* row, const Slice& slice) {
  for (int j = slice.begin + static_cast<int>(threadIdx.x); j < slice.end; j += blockDim.x) {
    row[j] = round_to<T>(0.0);
  }
}

// 16 bytes from device memory to shared memory, without a register and without waiting.
__device__ inline void copy_async(void* shared, const void* global) {
  const auto to = static_cast<unsigned>(__cvta_generic_to_shared(shared));
  asm volatile("cp.async.cg.shared.global [%0], [%1], 16;" ::"r"(to), "l"(global) : "memory");
}
__device__ inline void wait_for_copies() { asm volatile("cp.async.wait_all;" ::: "memory"); }

// A thread's four columns stay its own from load to store.
constexpr int kStep = kQuad * kThreads;

// Starts the copies of this thread's columns. Only the last quad of a row can be a part of one;
// what is behind the row's end becomes 0.
__device__ inline void load_slice(const float* row, const Slice& slice, float* resident) {
  int j = slice.begin + kQuad * static_cast<int>(threadIdx.x);
  for (; j + kQuad <= slice.end; j += kStep) copy_async(resident + (j - slice.begin), row + j);
  if (j >= slice.end) return;
  float z[kQuad];
  load_some(row, j, slice.end, z);
  *reinterpret_cast<float4*>(resident + (j - slice.begin)) = make_float4(z[0], z[1], z[2], z[3]);
}

// Statistics of this thread's columns, whose column `slice.begin` is from[0].
template <typename Acc, bool kFull>
__device__ inline ColumnStats<Acc, kFull> sum_slice(const Call& call, const Acc* from,
                                                    const Slice& slice, int target_col,
                                                    const LogitMap<Acc, kFull>& map) {
  ColumnStats<Acc, kFull> stats;
  Acc z[kQuad];
  int j = slice.begin + kQuad * static_cast<int>(threadIdx.x);
#pragma unroll 2
  for (; j + kQuad <= slice.end; j += kStep) {
    load_quad(from, j - slice.begin, z);
    add_quad<true>(call, z, kQuad, j, target_col, map, stats);
  }
  if (j < slice.end) {
    load_some(from, j - slice.begin, slice.end - slice.begin, z);
    add_quad<false>(call, z, slice.end - j, j, target_col, map, stats);
  }
  return stats;
}

// Gradients of this thread's columns from the resident logits.
template <typename T, bool kFull>
__device__ inline void write_resident(const Call& call, const float* resident, T* row,
                                      const Slice& slice, const Coefficients<float>& c,
                                      const LogitMap<float, kFull>& map) {
  float z[kQuad];
  int j = slice.begin + kQuad * static_cast<int>(threadIdx.x);
#pragma unroll 2
  for (; j + kQuad <= slice.end; j += kStep) {
    load_quad(resident, j - slice.begin, z);
    store_quad(row, j, gradient_quad<T, true>(call, z, kQuad, j, c, map));
  }
  if (j < slice.end) {
    load_some(resident, j - slice.begin, slice.end - slice.begin, z);
    store_some(row, j, slice.end, gradient_quad<T, false>(call, z, slice.end - j, j, c, map));
  }
}

// The same from the logits in memory, read again: a barrier between a step's reads and its writes
// keeps the writes, which are at most as wide, behind every read that is still to come.
template <typename Acc, typename T, bool kFull>
__device__ inline void write_streaming(const Call& call, const Acc* from, T* row, int cols,
                                       const Coefficients<Acc>& c,
                                       const LogitMap<Acc, kFull>& map) {
  for (int base = 0; base < cols; base += kStep) {
    const int j = base + kQuad * static_cast<int>(threadIdx.x);
    Acc z[kQuad];
    Quad<T> g;
    if (j + kQuad <= cols) {
      load_quad(from, j, z);
      g = gradient_quad<T, true>(call, z, kQuad, j, c, map);
    } else if (j < cols) {
      load_some(from, j, cols, z);
      g = gradient_quad<T, false>(call, z, cols - j, j, c, map);
    }
    __syncthreads();
    if (j + kQuad <= cols) {
      store_quad(row, j, g);
    } else {
      store_some(row, j, cols, g);
    }
  }
}

// Sums up over the row; its coefficients are in `shared` then, and its statistics in the state.
template <typename Acc, bool kFull>
__device__ inline void finish_row(const Call& call, std::int64_t token,
                                  const ColumnStats<Acc, kFull>& stats, const RowCluster& cluster,
                                  const LogitMap<Acc, kFull>& map, Shared<Acc, kFull>& shared) {
  const ColumnStats<Acc, kFull> slice = merge_block<kThreads>(stats, shared.of_warp);
  if (threadIdx.x == 0) shared.slice = slice;
  cluster.sync();  // all slices are read, and their statistics can be
  if (threadIdx.x < kWarp) {
    const unsigned rank = threadIdx.x % kMaxCluster;
    ColumnStats<Acc, kFull> mine;
    if (rank < cluster.size()) mine = cluster.read(&shared.slice, rank);
    mine = merge_lanes<kMaxCluster>(mine);
    if (threadIdx.x == 0) {
      RowStats row = row_stats_of(mine, map);
      if (!kFull) row.target_slope = 1.0;
      add_statistics(row, loss_params(call), shared.gradient);
      shared.coefficients = Coefficients<Acc>(shared.gradient, map.kUnit);
      if (cluster.rank() == 0) call.states[token].stats = row;
    }
  }
  __syncthreads();
  cluster.arrive();  // this block has read the others' statistics
}

template <typename Acc, typename T, bool kFull, bool kResident>
__global__ void __launch_bounds__(kThreads, kResident && !kFull ? 3 : 1)
    fused_rows(const __grid_constant__ Call call, LogitBlock block) {
  extern __shared__ __align__(16) float resident[];
  __shared__ Shared<Acc, kFull> shared;
  const RowCluster cluster;
  const std::int64_t row = blockIdx.x / cluster.size();
  const std::int64_t token = block.first_token + row;
  Acc* const logits = static_cast<Acc*>(block.data) + row * block.row_stride;
  T* const gradient = reinterpret_cast<T*>(logits);
  const Slice slice = slice_of(block.cols, cluster);  // V is below 2^31

  const std::int64_t target = call.states[token].target;
  if (target < 0) {  // of the whole cluster: nothing of the row is looked at
    zero_slice(gradient, slice);
    return;
  }
  if constexpr (kResident) load_slice(logits, slice, resident);
  if (threadIdx.x == 0) shared.gradient = call.gradients[token];  // the factors
  const int target_col = static_cast<int>(target - call.shard_begin);
  const auto map = map_of<Acc, kFull>(call, token);
  ColumnStats<Acc, kFull> stats;
  if constexpr (kResident) {
    wait_for_copies();
    stats = sum_slice(call, resident, slice, target_col, map);
  } else {
    stats = sum_slice(call, logits, slice, target_col, map);
  }
  finish_row(call, token, stats, cluster, map, shared);
  const Coefficients<Acc> c = shared.coefficients;
  if (cluster.rank() == 0 && threadIdx.x == kThreads - 1) call.gradients[token] = shared.gradient;
  if (shared.gradient.is_active == 0) {
    zero_slice(gradient, slice);
  } else if constexpr (kResident) {
    write_resident<T, kFull>(call, resident, gradient, slice, c, map);
  } else {
    write_streaming<Acc, T, kFull>(call, logits, gradient, slice.end, c, map);
  }
  cluster.wait();  // no block leaves while another one reads its statistics
}

// How many blocks share a row, and how much of it each holds; 0 bytes: none of it.
struct RowShape {
  int cluster = 1;
  int resident_bytes = 0;
};

RowShape row_shape(std::int64_t cols, const RowDevice& device) {
  const std::int64_t room =
      device.shared_bytes - static_cast<int>(sizeof(Shared<float, true>)) - 1024;
  const int most = device.has_clusters ? kMaxCluster : 1;
  for (int size = 1; size <= most; size *= 2) {
    const std::int64_t bytes = ((cols + size - 1) / size + 7) / 8 * 8 * 4;
    const bool fits = bytes <= (size == most || kSliceBytes > room ? room : kSliceBytes);
    if (fits) return {size, static_cast<int>(bytes)};
  }
  return {};
}

template <typename Kernel>
void launch(Kernel kernel, const Call& call, const LogitBlock& logits, const RowShape& shape,
            cudaStream_t stream) {
  cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, shape.resident_bytes);
  cudaFuncSetAttribute(kernel, cudaFuncAttributePreferredSharedMemoryCarveout,
                       cudaSharedmemCarveoutMaxShared);
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

template <typename T>
void launch_typed(const Call& call, const LogitBlock& logits, const RowShape& shape,
                  cudaStream_t stream) {
  using Acc = AccOf<T>;
  if constexpr (sizeof(T) == 2) {
    if (!needs_full(call)) {
      const bool fits = shape.resident_bytes > 0;
      launch(fits ? fused_rows<Acc, T, false, true> : fused_rows<Acc, T, false, false>, call,
             logits, shape, stream);
      return;
    }
  }
  if constexpr (sizeof(Acc) == 4) {
    if (shape.resident_bytes > 0) {
      launch(fused_rows<Acc, T, true, true>, call, logits, shape, stream);
      return;
    }
  }
  launch(fused_rows<Acc, T, true, false>, call, logits, RowShape{}, stream);
}

}  // namespace

RowDevice row_device() {
  RowDevice device;
  int index = 0;
  int major = 0;
  cudaGetDevice(&index);
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
  const RowShape shape = row_shape(logits.cols, device);
  visit_dtype(call.dtype, [&](auto type) {
    launch_typed<typename decltype(type)::type>(call, logits, shape, stream);
  });
}

}  // namespace flce::cuda
