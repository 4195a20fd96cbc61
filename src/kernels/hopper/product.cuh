// SPDX-License-Identifier: Apache-2.0
// A matrix product of bf16 operands with f32 sums from CUTLASS's parts for compute capability 9.0:
// the tensor memory accelerator fills a pipeline of shared memory, warp groups multiply, and a
// visitor (exponentials.cuh, options.cuh, target_terms.cuh, split_sums.cuh) turns the sums into
// what is stored.
#pragma once

#include <cuda_runtime.h>
#include <cutlass/cutlass.h>

#include <cutlass/epilogue/collective/collective_builder.hpp>
#include <cutlass/epilogue/fusion/sm90_visitor_tma_warpspecialized.hpp>
#include <cutlass/gemm/collective/collective_builder.hpp>
#include <cutlass/gemm/kernel/gemm_universal.hpp>

#include "kernels/hopper/kernels.hpp"
#include "kernels/hopper/tile_sizes.hpp"

namespace flce::cuda::hopper {

// How the two groups of consumer warps share the work: each a tile of its own in turns, so that the
// visitor of one runs beside the products of the other, or halves of one tile.
enum class Schedule { kPingpong, kCooperative };

// The constant choices of one product (tiles.hpp). kInParts: each sum is made in parts side by
// side, added in their order.
template <const TileSize& kTileSize, Schedule kSchedule, bool kInParts = false>
struct Shape {
  static constexpr const TileSize& kSize = kTileSize;
  using Tile = cute::Shape<cute::Int<kTileSize.rows>, cute::Int<kTileSize.cols>, cute::_64>;
  using Cluster = cute::Shape<cute::Int<kClusterRows>, cute::_1, cute::_1>;
  using MainSchedule = std::conditional_t<kSchedule == Schedule::kPingpong,
                                          cutlass::gemm::KernelTmaWarpSpecializedPingpong,
                                          cutlass::gemm::KernelTmaWarpSpecializedCooperative>;
  using StoreSchedule =
      std::conditional_t<kSchedule == Schedule::kPingpong, cutlass::epilogue::TmaWarpSpecialized,
                         cutlass::epilogue::TmaWarpSpecializedCooperative>;
  static constexpr bool kHasParts = kInParts;
  using Scheduler = std::conditional_t<kInParts, cutlass::gemm::StreamKScheduler,
                                       cutlass::gemm::PersistentScheduler>;
};

using Bf16 = cutlass::bfloat16_t;
using RowMajor = cutlass::layout::RowMajor;
using ColumnMajor = cutlass::layout::ColumnMajor;

// D (m, n) = visitor(A (m, k) * B (k, n), C (m, n)); `Out` void: nothing is stored, `In` void: no
// C. LayoutD: of C too.
template <typename Shape, typename LayoutA, typename LayoutB, typename Out, typename Visitor,
          typename In = void, typename LayoutD = RowMajor>
struct Product {
  using Epilogue = typename cutlass::epilogue::collective::CollectiveBuilder<
      cutlass::arch::Sm90, cutlass::arch::OpClassTensorOp, typename Shape::Tile,
      typename Shape::Cluster, cutlass::epilogue::collective::EpilogueTileAuto, float, float, In,
      LayoutD, 8, Out, LayoutD, 8, typename Shape::StoreSchedule, Visitor>::CollectiveOp;
  using Main = typename cutlass::gemm::collective::CollectiveBuilder<
      cutlass::arch::Sm90, cutlass::arch::OpClassTensorOp, Bf16, LayoutA, 8, Bf16, LayoutB, 8,
      float, typename Shape::Tile, typename Shape::Cluster,
      cutlass::gemm::collective::StageCountAutoCarveout<static_cast<int>(
          sizeof(typename Epilogue::SharedStorage))>,
      typename Shape::MainSchedule>::CollectiveOp;
  using Kernel = cutlass::gemm::kernel::GemmUniversal<cute::Shape<int, int, int, int>, Main,
                                                      Epilogue, typename Shape::Scheduler>;
};

// The strides that CUTLASS asks for: one is 1, the other one given, that of the batch 0.
inline void set_stride(cute::Stride<std::int64_t, cute::_1, std::int64_t>& to, std::int64_t by) {
  to = {by, cute::_1{}, 0};
}
inline void set_stride(cute::Stride<cute::_1, std::int64_t, std::int64_t>& to, std::int64_t by) {
  to = {cute::_1{}, by, 0};
}

template <typename Kernel>
__global__ void __launch_bounds__(Kernel::MaxThreadsPerBlock, Kernel::MinBlocksPerMultiprocessor)
    run_product(const __grid_constant__ typename Kernel::Params params, const int* run_if) {
  extern __shared__ __align__(128) char shared[];
  // The same in every block: none of a cluster waits for one that has left.
  if (run_if != nullptr && *run_if == 0) return;
  Kernel{}(params, shared);
}

struct ProductArgs {
  int m = 0, n = 0, k = 0;
  Matrix a, b;
  void* d = nullptr;          // C is D's old content
  std::int64_t d_stride = 0;  // from row to row, or from column to column
  const int* run_if = nullptr;
  int num_sms = 0;
  Parts parts;
};

inline ProductArgs product_of(const Exponentials& e, int num_sms) {
  return {e.rows, e.cols, e.hidden, e.x, e.w, e.e, e.e_row_stride, e.run_if, num_sms, {}};
}
// The gradients are made transposed: D's columns are their rows.
inline ProductArgs product_of(const GradHidden& g, int num_sms) {
  return {g.hidden, g.rows, g.cols, g.w, g.e, g.out, g.out_row_stride, nullptr, num_sms, g.parts};
}
inline ProductArgs product_of(const GradWeight& g, int num_sms) {
  return {g.hidden, g.cols, g.rows + g.smoothing_rows, g.xs, g.e, g.out, g.out_row_stride, nullptr,
          num_sms,  {}};
}

// The flags of the parts are cleared, and what they need is checked against what was booked.
template <typename Kernel>
cudaError_t prepare_parts(typename Kernel::Arguments& args, const Parts& parts,
                          cudaStream_t stream) {
  using Scheduler = typename Kernel::TileSchedulerParams;
  args.scheduler.splits = parts.count;
  args.scheduler.decomposition_mode = Scheduler::DecompositionMode::SplitK;
  args.scheduler.reduction_mode = Scheduler::ReductionMode::Deterministic;
  if (Kernel::get_workspace_size(args) > parts.bytes) return cudaErrorInvalidValue;
  return Kernel::initialize_workspace(args, parts.scratch, stream) == cutlass::Status::kSuccess
             ? cudaSuccess
             : cudaErrorUnknown;
}

// CUTLASS, given a group, would fill up the matrix to whole groups in both directions.
template <typename Scheduler>
void take_in_groups(Scheduler& scheduler, const Order& order) {
  const auto tiles = static_cast<std::uint64_t>(order.tiles);
  scheduler.log_swizzle_size_ = order.log_group;
  scheduler.blocks_per_problem_ = tiles;
  scheduler.divmod_batch_ = cutlass::FastDivmodU64(tiles);
}

template <typename Kernel>
cudaError_t start_product(typename Kernel::Params& params, dim3 grid, const int* run_if,
                          cudaStream_t stream) {
  const void* const kernel = reinterpret_cast<const void*>(run_product<Kernel>);
  const cudaError_t allowed = cudaFuncSetAttribute(
      kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, Kernel::SharedStorageSize);
  if (allowed != cudaSuccess) return allowed;
  cudaLaunchAttribute cluster{};
  cluster.id = cudaLaunchAttributeClusterDimension;
  cluster.val.clusterDim = {kClusterRows, 1, 1};
  cudaLaunchConfig_t config{};
  config.gridDim = grid;
  config.blockDim = Kernel::get_block_shape();
  config.dynamicSmemBytes = Kernel::SharedStorageSize;
  config.stream = stream;
  config.attrs = &cluster;
  config.numAttrs = 1;
  void* arguments[] = {&params, &run_if};
  return cudaLaunchKernelExC(&config, kernel, arguments);
}

template <typename Shape, typename Kernel, typename VisitorArgs>
cudaError_t launch_product(const ProductArgs& p, const VisitorArgs& visitor, cudaStream_t stream) {
  typename Kernel::Arguments args{};
  args.mode = cutlass::gemm::GemmUniversalMode::kGemm;
  args.problem_shape = {p.m, p.n, p.k, 1};
  args.mainloop.ptr_A = static_cast<const Bf16*>(p.a.data);
  set_stride(args.mainloop.dA, p.a.row_stride);
  args.mainloop.ptr_B = static_cast<const Bf16*>(p.b.data);
  set_stride(args.mainloop.dB, p.b.row_stride);
  args.epilogue.thread = visitor;
  args.epilogue.ptr_D = static_cast<decltype(args.epilogue.ptr_D)>(p.d);
  set_stride(args.epilogue.dD, p.d_stride);
  args.epilogue.ptr_C = static_cast<decltype(args.epilogue.ptr_C)>(p.d);
  set_stride(args.epilogue.dC, p.d_stride);
  args.hw_info.sm_count = p.num_sms;
  const Order order = order_of(Shape::kSize, p.m, p.n, p.num_sms);
  using Raster = decltype(args.scheduler.raster_order);
  args.scheduler.raster_order = order.is_along_cols ? Raster::AlongN : Raster::AlongM;
  args.scheduler.max_swizzle_size = 1;
  if constexpr (Shape::kHasParts) {
    const cudaError_t prepared = prepare_parts<Kernel>(args, p.parts, stream);
    if (prepared != cudaSuccess) return prepared;
  }
  typename Kernel::Params params = Kernel::to_underlying_arguments(args, p.parts.scratch);
  const dim3 grid = Kernel::get_grid_shape(params);
  if constexpr (!Shape::kHasParts) take_in_groups(params.scheduler, order);
  return start_product<Kernel>(params, grid, p.run_if, stream);
}

}  // namespace flce::cuda::hopper
