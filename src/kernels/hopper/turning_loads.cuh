// SPDX-License-Identifier: Apache-2.0
// How a product's operands come to shared memory: CUTLASS's parts, with the sums of some columns of
// tiles running from their far end to their near one. Tiles that follow each other on the card then
// meet at the end where the one before has just been, which the L2 cache still holds.
#pragma once

#include <cutlass/gemm/collective/collective_builder.hpp>

#include "kernels/hopper/tile_sizes.hpp"

namespace flce::cuda::hopper {

// `Base`: CUTLASS's main loop for clusters of kClusterRows x 1.
template <typename Base>
struct TurningLoads : Base {
  static_assert(cute::is_same_v<typename Base::GmemTiledCopyA, cute::SM90_TMA_LOAD> &&
                cute::is_same_v<typename Base::GmemTiledCopyB, cute::SM90_TMA_LOAD_MULTICAST>);

  struct Params : Base::Params {
    int turn_cols = 0;  // so many columns of tiles in one direction, as many in the other; 0: all
  };

  template <typename Problem>
  static constexpr Params to_underlying_arguments(const Problem& problem,
                                                  const typename Base::Arguments& args,
                                                  void* workspace) {
    return {Base::to_underlying_arguments(problem, args, workspace)};
  }

  // By all threads of the producing warp, for one tile. A direction depends on the column alone: a
  // row's sums do not change with its place.
  template <typename Operands, typename Tile, typename Iterator>
  CUTLASS_DEVICE void load(const Params& params, typename Base::MainloopPipeline pipeline,
                           typename Base::PipelineState state, const Operands& operands,
                           const Tile& tile, Iterator /*from*/, int steps, int /*thread*/,
                           std::uint32_t rank_in_cluster, typename Base::TensorStorage& shared) {
    using namespace cute;
    if (!elect_one_sync()) return;
    const auto [row, col, k, batch] = tile;
    const auto loads_a = params.tma_load_a.get_slice(0);
    const auto loads_b = params.tma_load_b.get_slice(rank_in_cluster);
    const Tensor from_a = loads_a.partition_S(get<0>(operands)(_, _, row, _, batch));
    const Tensor from_b = loads_b.partition_S(get<1>(operands)(_, _, col, _, batch));
    const Tensor to_a = loads_a.partition_D(
        make_tensor(make_smem_ptr(shared.smem_A.data()), typename Base::SmemLayoutA{}));
    const Tensor to_b = loads_b.partition_D(
        make_tensor(make_smem_ptr(shared.smem_B.data()), typename Base::SmemLayoutB{}));
    constexpr std::uint16_t kAllOfCluster = (1 << kClusterRows) - 1;

    const bool is_turned = params.turn_cols != 0 && col / params.turn_cols % 2 != 0;
    CUTLASS_PRAGMA_NO_UNROLL
    for (int i = 0; i < steps; ++i, ++state) {
      pipeline.producer_acquire(state);
      auto* const arrived = pipeline.producer_get_barrier(state);
      const int step = is_turned ? steps - 1 - i : i;
      copy(params.tma_load_a.with(*arrived), from_a(_, _, _, step), to_a(_, _, _, state.index()));
      copy(params.tma_load_b.with(*arrived, kAllOfCluster), from_b(_, _, _, step),
           to_b(_, _, _, state.index()));
    }
  }
};

}  // namespace flce::cuda::hopper
