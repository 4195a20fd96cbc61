// SPDX-License-Identifier: Apache-2.0
// How rows come to the kernel that keeps them in shared memory: the blocks that share a row, which
// columns are whose, the copies, and what the blocks tell each other.
#pragma once

#include <cooperative_groups.h>

#include "kernels/portable/row_columns.cuh"

namespace flce::cuda {

namespace cg = cooperative_groups;

// A row's copies arrive in this many parts, each of which is summed while the next ones arrive.
constexpr int kParts = 2;
constexpr int kMaxCluster = 16;

// The blocks that share a row. Of code for cards without clusters it is one.
struct RowCluster {
#if __CUDA_ARCH__ >= 900
  __device__ unsigned rank() const { return cg::this_cluster().block_rank(); }
  __device__ unsigned size() const { return cg::this_cluster().num_blocks(); }
  __device__ void sync() const { cg::this_cluster().sync(); }
#else
  __device__ unsigned rank() const { return 0; }
  __device__ unsigned size() const { return 1; }
  __device__ void sync() const { __syncthreads(); }
#endif
};

// Columns [begin, end) of a row; the first one is a multiple of 8: 16-byte pieces of any type.
struct Slice {
  int begin;
  int end;
  __device__ int width() const { return end - begin; }
};
// Of all slices but the last ones.
template <typename Int>
__host__ __device__ inline Int slice_width(Int cols, Int cluster_size) {
  return ((cols + cluster_size - 1) / cluster_size + 7) / 8 * 8;
}
__device__ inline Slice slice_of(std::int64_t cols, const RowCluster& cluster) {
  const int all = static_cast<int>(cols);  // V is below 2^31
  const int width = slice_width(all, static_cast<int>(cluster.size()));
  const int begin = min(all, static_cast<int>(cluster.rank()) * width);
  return {begin, min(all, begin + width)};
}

// A thread's quads of one part of a slice: from `first` on, kQuad * kThreads apart, before `end`;
// counted from the slice's begin.
struct Part {
  int first;
  int end;
};
template <int kThreads>
__device__ inline Part part_of(int slice_width, int part) {
  constexpr int kStep = kQuad * kThreads;
  const int width = ((slice_width + kStep - 1) / kStep + kParts - 1) / kParts * kStep;
  const int begin = part * width;
  return {begin + kQuad * static_cast<int>(threadIdx.x), min(slice_width, begin + width)};
}

__device__ inline unsigned shared_address(const void* shared) {
  return static_cast<unsigned>(__cvta_generic_to_shared(shared));
}

// kBytes (4, 8 or 16) from device memory to shared memory, without a register and without waiting.
template <int kBytes>
__device__ inline void copy_async(void* shared, const void* global) {
  const unsigned to = shared_address(shared);
  if constexpr (kBytes == 16) {
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16;" ::"r"(to), "l"(global) : "memory");
  } else {
    asm volatile("cp.async.ca.shared.global [%0], [%1], %2;" ::"r"(to), "l"(global), "n"(kBytes)
                 : "memory");
  }
}
__device__ inline void end_of_part() { asm volatile("cp.async.commit_group;" ::: "memory"); }
template <int kPart>
__device__ inline void wait_for_part() {
  asm volatile("cp.async.wait_group %0;" ::"n"(kParts - 1 - kPart) : "memory");
}

// A row that is to come: its logits (null: none, or a token without a target) and where the factors
// of its gradient go.
struct NextRow {
  const float* logits;  // of the slice
  const TokenGradient* from;
  TokenGradient* to;

  __device__ void load_factors() const {
    constexpr int kWords = sizeof(TokenGradient) / 8;
    static_assert(sizeof(TokenGradient) % 8 == 0 && kWords <= kWarp);
    if (logits == nullptr || threadIdx.x >= kWords) return;
    copy_async<8>(reinterpret_cast<double*>(to) + threadIdx.x,
                  reinterpret_cast<const double*>(from) + threadIdx.x);
  }
  __device__ void load_quad(float* resident, int j) const {
    if (logits != nullptr) copy_async<16>(resident + j, logits + j);
  }
  // What there is of the last quad.
  __device__ void load_some(float* resident, int j, int end) const {
    if (logits == nullptr) return;
#pragma unroll
    for (int i = 0; i < kQuad - 1; ++i) {
      if (j + i < end) copy_async<4>(resident + j + i, logits + j + i);
    }
  }
};

template <int kThreads>
__device__ inline void load_row(const NextRow& next, int width, float* resident) {
  next.load_factors();
  for (int p = 0; p < kParts; ++p) {
    const Part part = part_of<kThreads>(width, p);
    int j = part.first;
    for (; j + kQuad <= part.end; j += kQuad * kThreads) next.load_quad(resident, j);
    next.load_some(resident, j, part.end);
    end_of_part();
  }
}

// Each block of a cluster tells all of them something, once a row. Two of each: what is written for
// a row may still be read for the row before.
template <typename Stats>
struct Exchange {
  static constexpr int kWords = static_cast<int>(sizeof(Stats) / 8);
  static_assert(sizeof(Stats) % 8 == 0);

  unsigned long long has_arrived[2];  // mbarriers
  Stats of_block[2][kMaxCluster];

  // By one thread; then the cluster has to meet before anybody tells something.
  __device__ void begin() {
#if __CUDA_ARCH__ >= 900
    for (unsigned long long& barrier : has_arrived) {
      asm volatile("mbarrier.init.shared::cta.b64 [%0], 1;" ::"r"(shared_address(&barrier)));
    }
    asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
#endif
  }

  // By one warp of each block, for the `count`-th time: lane i gets what block i % kMaxCluster
  // tells. Whoever tells has read its part of the row, so behind this all of it is read.
  __device__ Stats tell(const RowCluster& cluster, const Stats& mine, unsigned count) {
    if (cluster.size() == 1) return mine;
    Stats theirs;
#if __CUDA_ARCH__ >= 900
    const unsigned lane = threadIdx.x % kWarp;
    const unsigned turn = count % 2;
    const unsigned barrier = shared_address(&has_arrived[turn]);
    if (lane == 0) {
      asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(barrier),
                   "r"(cluster.size() * static_cast<unsigned>(sizeof(Stats)))
                   : "memory");
    }
    if (lane < cluster.size()) {
      unsigned long long words[kWords];
      memcpy(words, &mine, sizeof mine);
      const unsigned to = there(shared_address(&of_block[turn][cluster.rank()]), lane);
      const unsigned its_barrier = there(barrier, lane);
#pragma unroll
      for (int i = 0; i < kWords; ++i) {
        asm volatile(
            "st.async.weak.shared::cluster.mbarrier::complete_tx::bytes.b64 [%0], %1, [%2];" ::"r"(
                to + 8 * i),
            "l"(words[i]), "r"(its_barrier)
            : "memory");
      }
    }
    wait(barrier, count / 2 % 2);
    if (lane % kMaxCluster < cluster.size()) theirs = of_block[turn][lane % kMaxCluster];
#endif
    return theirs;
  }

 private:
#if __CUDA_ARCH__ >= 900
  // An address of this block's shared memory, in that of another block.
  __device__ static unsigned there(unsigned address, unsigned rank) {
    unsigned remote;
    asm("mapa.shared::cluster.u32 %0, %1, %2;" : "=r"(remote) : "r"(address), "r"(rank));
    return remote;
  }
  __device__ static void wait(unsigned barrier, unsigned parity) {
    unsigned is_done = 0;
    while (is_done == 0) {
      asm volatile(
          "{\n.reg .pred p;\n"
          "mbarrier.try_wait.parity.acquire.cluster.shared::cta.b64 p, [%1], %2;\n"
          "selp.u32 %0, 1, 0, p;\n}"
          : "=r"(is_done)
          : "r"(barrier), "r"(parity)
          : "memory");
    }
  }
#endif
};

}  // namespace flce::cuda
