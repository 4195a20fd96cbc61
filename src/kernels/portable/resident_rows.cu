// SPDX-License-Identifier: Apache-2.0
// Logits become their gradient: one row of f32 logits is read once, its statistics and its
// coefficients are made, and the gradient is written in its place, rounded once to the problem's
// type. Floor: 4 bytes read and 2 written for each logit of a 16-bit problem.
//
// A row waits in shared memory between its two uses, cut into the slices of a cluster of blocks,
// which exchange their statistics through each other's shared memory. The clusters stay for the
// whole launch and take rows in turn. A thread's columns stay its own from load to store, so where
// it has stored a gradient it starts the copy of its next row's logits at once: memory is busy
// while a row's sum is made, and no barrier is needed for it. Slices are kept so small that several
// blocks are on a multiprocessor: while one of them waits for its row's sum, the others go on.
//
// In place: gradient j of a row stands at j * sizeof(gradient), where logits up to j stood, so a
// block may write only behind what all slices have read: the exchange of the statistics.
#include <limits>
#include <map>
#include <mutex>
#include <tuple>

#include "kernels/portable/row_math.cuh"
#include "kernels/portable/row_movement.cuh"
#include "kernels/portable/token_math.cuh"

namespace flce::cuda {
namespace {

// A slice of this many bytes leaves room for three blocks on a multiprocessor of 227 KB.
constexpr int kSliceBytes = 70 << 10;

// Two of what is written again for the next row while others may still read it.
template <bool kFull, int kThreads>
struct Shared {
  ColumnStats<float, kFull> of_warp[kThreads / kWarp];
  Exchange<ColumnStats<float, kFull>> exchange;
  TokenGradient gradient[2];
  Coefficients<float> coefficients;
};

// Statistics of this thread's columns, as they arrive.
template <int kThreads, bool kFull, int kPart = 0>
__device__ inline void sum_parts(const Call& call, const float* resident, const Slice& slice,
                                 int target_col, const LogitMap<float, kFull>& map,
                                 ColumnStats<float, kFull>& stats) {
  const Part part = part_of<kThreads>(slice.width(), kPart);
  wait_for_part<kPart>();
  sum_columns<kQuad * kThreads>(call, resident, part.first, part.end, slice.begin, target_col, map,
                                stats);
  if constexpr (kPart + 1 < kParts) {
    sum_parts<kThreads, kFull, kPart + 1>(call, resident, slice, target_col, map, stats);
  }
}

// Gradients of this thread's columns from the resident logits, whose place the next row's take.
template <int kThreads, typename T, bool kFull>
__device__ inline void write_slice(const Call& call, float* resident, T* row, const Slice& slice,
                                   const Coefficients<float>& c, const LogitMap<float, kFull>& map,
                                   const NextRow& next) {
  constexpr int kStep = kQuad * kThreads;
  constexpr int kBatch = 4;
  next.load_factors();
  for (int p = 0; p < kParts; ++p) {
    const Part part = part_of<kThreads>(slice.width(), p);
    int j = part.first;
    const auto write = [&](const float(&z)[kQuad], int at) {
      store_quad(row, at, gradient_quad<T, true, false>(call, z, kQuad, slice.begin + at, c, map));
      next.load_quad(resident, at);
    };
    for (; j + (kBatch - 1) * kStep + kQuad <= part.end; j += kBatch * kStep) {
      float z[kBatch][kQuad];
#pragma unroll
      for (int q = 0; q < kBatch; ++q) load_quad(resident, j + q * kStep, z[q]);
#pragma unroll
      for (int q = 0; q < kBatch; ++q) write(z[q], j + q * kStep);
    }
    float z[kQuad];
    for (; j + kQuad <= part.end; j += kStep) {
      load_quad(resident, j, z);
      write(z, j);
    }
    if (j < part.end) {
      load_some(resident, j, part.end, z);
      store_some(row, j, part.end,
                 gradient_quad<T, false, false>(call, z, part.end - j, slice.begin + j, c, map));
      next.load_some(resident, j, part.end);
    }
    end_of_part();
  }
  // The target's, over what its thread has written there.
  const int at = c.target - slice.begin;
  const bool is_mine = at >= 0 && at < slice.width() && at / kQuad % kThreads == threadIdx.x;
  if (is_mine) row[at] = round_to<T>(c.t);
}

// Sums up over the row; its coefficients are in `shared` then, and its statistics in the state.
template <int kThreads, bool kFull>
__device__ inline void finish_row(const Call& call, std::int64_t token, unsigned count,
                                  const ColumnStats<float, kFull>& stats, const RowCluster& cluster,
                                  const LogitMap<float, kFull>& map, TokenGradient& gradient,
                                  Shared<kFull, kThreads>& shared) {
  const ColumnStats<float, kFull> slice = merge_block<kThreads>(stats, shared.of_warp);
  if (threadIdx.x < kWarp) {
    ColumnStats<float, kFull> sum = shared.exchange.tell(cluster, slice, count);
    if (cluster.size() > 1) sum = merge_lanes<kMaxCluster>(sum);
    if (threadIdx.x == 0) {
      const RowStats row = row_stats_of(sum, map, gradient.target >= 0);
      add_statistics(row, loss_params(call), gradient);
      shared.coefficients = Coefficients<float>(gradient, map.kUnit);
      if (cluster.rank() == 0) call.states[token].stats = row;
    }
  }
  __syncthreads();
}

template <typename T, bool kFull, int kThreads, int kBlocks>
__global__ void __launch_bounds__(kThreads, kBlocks)
    resident_rows(const __grid_constant__ Call call, LogitBlock block) {
  extern __shared__ __align__(16) float resident[];
  __shared__ __align__(16) std::byte shared_bytes[sizeof(Shared<kFull, kThreads>)];
  auto& shared = reinterpret_cast<Shared<kFull, kThreads>&>(shared_bytes);
  const RowCluster cluster;
  if (threadIdx.x == 0) shared.exchange.begin();
  cluster.sync();
  const std::int64_t num_clusters = gridDim.x / cluster.size();
  const Slice slice = slice_of(block.cols, cluster);
  const auto logits_of = [&](std::int64_t row) {
    return static_cast<float*>(block.data) + row * block.row_stride;
  };
  const auto target_of = [&](std::int64_t row) {
    return row < block.rows ? call.states[block.first_token + row].target : kIgnored;
  };
  const auto next_of = [&](std::int64_t row, std::int64_t target, int turn) {
    return NextRow{target >= 0 ? logits_of(row) + slice.begin : nullptr,
                   call.gradients + block.first_token + row, &shared.gradient[turn]};
  };

  std::int64_t row = blockIdx.x / cluster.size();
  std::int64_t target = target_of(row);
  int turn = 0;
  unsigned count = 0;
  load_row<kThreads>(next_of(row, target, turn), slice.width(), resident);
  for (; row < block.rows; row += num_clusters, turn ^= 1) {
    const std::int64_t token = block.first_token + row;
    const std::int64_t next_target = target_of(row + num_clusters);
    const NextRow next = next_of(row + num_clusters, next_target, turn ^ 1);
    T* const to = reinterpret_cast<T*>(logits_of(row)) + slice.begin;
    TokenGradient& gradient = shared.gradient[turn];
    bool is_active = false;
    if (target >= 0) {  // or not, for the whole cluster: then nothing of the row is looked at
      const auto map = map_of<float, kFull>(call, token);
      ColumnStats<float, kFull> stats;
      sum_parts<kThreads>(call, resident, slice, static_cast<int>(target - call.shard_begin), map,
                          stats);
      finish_row(call, token, count++, stats, cluster, map, gradient, shared);
      if (cluster.rank() == 0 && threadIdx.x == kThreads - 1) call.gradients[token] = gradient;
      is_active = gradient.is_active != 0;
      if (is_active) {
        const Coefficients<float> c = shared.coefficients;
        write_slice<kThreads>(call, resident, to, slice, c, map, next);
      }
    } else {
      __syncthreads();  // all threads have looked at the factors that the next but one replace
    }
    if (!is_active) {
      for (int j = static_cast<int>(threadIdx.x); j < slice.width(); j += kThreads) {
        to[j] = round_to<T>(0.0);
      }
      load_row<kThreads>(next, slice.width(), resident);
    }
    target = next_target;
  }
  cluster.sync();  // no block leaves while another one tells it something
}

// How a launch is laid out.
struct Layout {
  int cluster = 0;  // blocks that share a row; 0: rows cannot be resident
  int slice_bytes = 0;
  int num_clusters = 0;  // that the device holds at once
};

cudaLaunchConfig_t config_of(const Layout& layout, int threads, cudaLaunchAttribute* attribute) {
  cudaLaunchConfig_t config = {};
  config.gridDim = dim3(static_cast<unsigned>(layout.num_clusters * layout.cluster));
  config.blockDim = dim3(static_cast<unsigned>(threads));
  config.dynamicSmemBytes = static_cast<std::size_t>(layout.slice_bytes);
  attribute->id = cudaLaunchAttributeClusterDimension;
  attribute->val.clusterDim.x = static_cast<unsigned>(layout.cluster);
  attribute->val.clusterDim.y = 1;
  attribute->val.clusterDim.z = 1;
  config.attrs = attribute;
  config.numAttrs = layout.cluster > 1 ? 1 : 0;
  return config;
}

// How many clusters of that size the current device holds at once.
template <typename Kernel>
int room_for(Kernel kernel, Layout layout, int threads, int device) {
  layout.num_clusters = 1;
  int count = 0;
  if (layout.cluster == 1) {
    int num_multiprocessors = 0;
    cudaDeviceGetAttribute(&num_multiprocessors, cudaDevAttrMultiProcessorCount, device);
    cudaOccupancyMaxActiveBlocksPerMultiprocessor(&count, kernel, threads,
                                                  static_cast<std::size_t>(layout.slice_bytes));
    return count * num_multiprocessors;
  }
  cudaLaunchAttribute attribute = {};
  const cudaLaunchConfig_t config = config_of(layout, threads, &attribute);
  if (cudaOccupancyMaxActiveClusters(&count, kernel, &config) != cudaSuccess) {
    cudaGetLastError();  // this size is none of this device's
    return 0;
  }
  return count;
}

// The smallest cluster whose slices are at most `slice_bytes`, or what a block may have.
template <typename Kernel>
Layout lay_out(Kernel kernel, int threads, std::int64_t cols, int slice_bytes, int device) {
  cudaFuncAttributes code = {};
  cudaFuncGetAttributes(&code, kernel);
  int room = 0;  // of one block
  cudaDeviceGetAttribute(&room, cudaDevAttrMaxSharedMemoryPerBlockOptin, device);
  room -= static_cast<int>(code.sharedSizeBytes);
  const int most_bytes = slice_bytes < room ? slice_bytes : room;
  cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, room);
  cudaFuncSetAttribute(kernel, cudaFuncAttributePreferredSharedMemoryCarveout,
                       cudaSharedmemCarveoutMaxShared);
  cudaFuncSetAttribute(kernel, cudaFuncAttributeNonPortableClusterSizeAllowed, 1);
  // Code that the driver made from the PTX of an older architecture has no clusters in it.
  const int most = code.ptxVersion >= 90 ? kMaxCluster : 1;
  for (int size = 1; size <= most; size *= 2) {
    const std::int64_t bytes = slice_width<std::int64_t>(cols, size) * sizeof(float);
    if (bytes > most_bytes) continue;
    Layout layout{size, static_cast<int>(bytes), 0};
    layout.num_clusters = room_for(kernel, layout, threads, device);
    if (layout.num_clusters > 0) return layout;
  }
  return {};
}

// The driver is asked once for each kernel, width and device.
template <typename Kernel>
Layout known_layout(Kernel kernel, int threads, std::int64_t cols, int slice_bytes) {
  static std::mutex mutex;
  static std::map<std::tuple<int, const void*, std::int64_t>, Layout> known;
  int device = 0;
  cudaGetDevice(&device);
  const std::tuple key(device, reinterpret_cast<const void*>(kernel), cols);
  const std::lock_guard<std::mutex> lock(mutex);
  const auto found = known.find(key);
  if (found != known.end()) return found->second;
  return known[key] = lay_out(kernel, threads, cols, slice_bytes, device);
}

template <int kThreads, typename Kernel>
bool launch(Kernel kernel, const Call& call, const LogitBlock& logits, int slice_bytes,
            cudaStream_t stream) {
  Layout layout = known_layout(kernel, kThreads, logits.cols, slice_bytes);
  if (layout.cluster == 0) return false;
  if (logits.rows < layout.num_clusters) layout.num_clusters = static_cast<int>(logits.rows);
  cudaLaunchAttribute attribute = {};
  cudaLaunchConfig_t config = config_of(layout, kThreads, &attribute);
  config.stream = stream;
  cudaLaunchKernelEx(&config, kernel, call, logits);
  return true;
}

template <typename T, bool kFull>
bool launch_typed(const Call& call, const LogitBlock& logits, cudaStream_t stream) {
  constexpr int kFew = 256;
  constexpr int kMany = 512;  // of a block that is alone
  constexpr int kBlocks = kFull ? 2 : 3;
  constexpr int kAll = std::numeric_limits<int>::max();
  return launch<kFew>(resident_rows<T, kFull, kFew, kBlocks>, call, logits, kSliceBytes, stream) ||
         launch<kMany>(resident_rows<T, kFull, kMany, 1>, call, logits, kAll, stream);
}

}  // namespace

bool launch_resident_rows(const Call& call, const LogitBlock& logits, cudaStream_t stream) {
  bool served = false;
  visit_real(call.dtype, [&](auto type) {
    using T = typename decltype(type)::type;
    if constexpr (sizeof(AccOf<T>) == 4) {
      if constexpr (sizeof(T) == 2) {
        if (!needs_full(call)) {
          served = launch_typed<T, false>(call, logits, stream);
          return;
        }
      }
      served = launch_typed<T, true>(call, logits, stream);
    }
  });
  return served;
}

}  // namespace flce::cuda
