// SPDX-License-Identifier: Apache-2.0
// What the visitors of our products have in common. CUTLASS hands a visitor the sums of one output
// tile in fragments; each thread holds the same few rows of the tile throughout.
#pragma once

#include "kernels/hopper/product.cuh"

namespace flce::cuda::hopper {

namespace fusion = cutlass::epilogue::fusion;

// A visitor that loads through no shared memory. `Params` is what the host gives.
template <typename Params_>
struct VisitorBase {
  struct SharedStorage {};
  using Params = Params_;
  using Arguments = Params_;

  template <typename Problem>
  static constexpr Params to_underlying_arguments(const Problem&, const Arguments& args, void*) {
    return args;
  }
  template <typename Problem>
  static bool can_implement(const Problem&, const Arguments&) {
    return true;
  }
  template <typename Problem>
  static std::size_t get_workspace_size(const Problem&, const Arguments&) {
    return 0;
  }
  template <typename Problem>
  static cutlass::Status initialize_workspace(const Problem&, const Arguments&, void*, cudaStream_t,
                                              cutlass::CudaHostAdapter* = nullptr) {
    return cutlass::Status::kSuccess;
  }

  CUTLASS_HOST_DEVICE VisitorBase() {}
  CUTLASS_HOST_DEVICE VisitorBase(const Params& p, const SharedStorage&) : params(&p) {}
  CUTLASS_DEVICE bool is_producer_load_needed() const { return false; }
  CUTLASS_DEVICE bool is_C_load_needed() const { return false; }
  template <typename... Args>
  CUTLASS_DEVICE auto get_producer_load_callbacks(
      const fusion::detail::ProducerLoadArgs<Args...>&) {
    return fusion::EmptyProducerLoadCallbacks{};
  }

  const Params* params = nullptr;
};

// A thread's part of a vector with a T for each row, or for each column, of the matrix, in the
// places of a partition of the tile: (CPY, CPY_M, CPY_N, EPI_M, EPI_N) with stride 0 across.
template <typename T, bool kBySource, typename Args, typename RowStride, typename ColStride>
CUTLASS_DEVICE auto part_of_vector(const Args& args, RowStride by_row, ColStride by_col) {
  using namespace cute;
  const auto rows = get<0>(args.problem_shape_mnkl);
  const auto cols = get<1>(args.problem_shape_mnkl);
  const auto batch = get<3>(args.problem_shape_mnkl);
  const Tensor vector = make_tensor(
      make_gmem_ptr(static_cast<const T*>(nullptr)),
      make_layout(make_layout(rows, by_row), make_layout(cols, by_col), make_layout(batch, _0{})));
  return fusion::detail::sm90_partition_for_epilogue<kBySource>(vector, args.tile_shape_mnk,
                                                                args.tile_coord_mnkl, args.epi_tile,
                                                                args.tiled_copy, args.thread_idx);
}

// One register of T for each row of the tile that a thread holds.
template <typename T, bool kBySource, typename Args>
CUTLASS_DEVICE auto make_row_registers(const Args& args) {
  return cute::make_tensor_like<T>(part_of_vector<T, kBySource>(args, cute::_1{}, cute::_0{}));
}

// In the place of each element the number of its column among those that a thread holds.
template <bool kBySource, typename Args>
CUTLASS_DEVICE auto number_columns(const Args& args) {
  using namespace cute;
  const auto part = part_of_vector<int, kBySource>(args, _0{}, _1{});
  return make_tensor(counting_iterator<int>{}, make_layout_like(part.layout()));
}

// The place of a thread's fragments: first row and column, and how far they are from the end.
struct Place {
  int row, col;
  int rows_left, cols_left;  // of the matrix, from that row and column on
};

template <typename Args>
CUTLASS_DEVICE Place place_of(const Args& args) {
  Place place;
  place.rows_left = cute::get<0>(args.residue_tCcD);
  place.cols_left = cute::get<1>(args.residue_tCcD);
  place.row = cute::get<0>(args.problem_shape_mnkl) - place.rows_left;
  place.col = cute::get<1>(args.problem_shape_mnkl) - place.cols_left;
  return place;
}

// Calls use(register index, row) for each row of the matrix that this thread holds.
template <typename Registers, typename Coordinates, typename Use>
CUTLASS_DEVICE void for_each_row(const Registers& registers, const Coordinates& coordinates,
                                 const Place& place, Use use) {
  using namespace cute;
  const auto places = filter_zeros(coordinates, registers.stride());
  const int count = size(filter_zeros(registers));
  CUTLASS_PRAGMA_UNROLL
  for (int i = 0; i < count; ++i) {
    const int row = get<0>(places(i));
    if (row < place.rows_left) use(i, place.row + row);
  }
}

}  // namespace flce::cuda::hopper
