// SPDX-License-Identifier: Apache-2.0
// The visitor of the first product: sums -> exponentials, their target left out, and for each row
// the sum and the largest exponent of the tile.
#pragma once

#include "kernels/hopper/visitor.cuh"
#include "kernels/portable/row_math.cuh"

namespace flce::cuda::hopper {

// NaN wins.
CUTLASS_DEVICE float smaller_of(float a, float b) {
  float y;
  asm("min.NaN.f32 %0, %1, %2;" : "=f"(y) : "f"(a), "f"(b));
  return y;
}

// A row whose exponents leave +-kSafe is made again with another offset; what it holds until then
// must be finite.
constexpr float kLargestExponent = 100.0f;

struct ExponentialsParams {
  const float* factor;
  const float* offset;
  const int* target;
  int first_col;
  TilePart* parts;
  std::int64_t part_stride;
};

inline ExponentialsParams params_of(const Exponentials& e) {
  return {e.tokens.factor,
          e.tokens.offset,
          e.tokens.target,
          e.first_col,
          static_cast<TilePart*>(e.parts),
          e.part_stride};
}

// What a thread's rows need to become exponentials; rows beyond the matrix have factor 0, no
// target.
template <typename Params, typename Floats, typename Ints, typename Coordinates>
CUTLASS_DEVICE void load_rows(const Params& params, const Coordinates& coordinates,
                              const Place& place, Floats& factor, Floats& offset, Ints& target) {
  using namespace cute;
  clear(factor);
  clear(offset);
  fill(target, -1);
  auto factors = filter_zeros(factor);
  auto offsets = filter_zeros(offset);
  auto targets = filter_zeros(target);
  for_each_row(factor, coordinates, place, [&](int i, int row) {
    factors(i) = params.factor[row];
    offsets(i) = params.offset[row];
    targets(i) = params.target[row] - params.first_col - place.col;
  });
}

struct ExponentialsVisitor : VisitorBase<ExponentialsParams> {
  using VisitorBase::VisitorBase;
  using ElementAux = Bf16;  // what CUTLASS computes layouts with where nothing is stored

  template <typename Floats, typename Ints, typename Coordinates>
  struct Callbacks : fusion::EmptyConsumerStoreCallbacks {
    CUTLASS_DEVICE Callbacks(Floats floats, Ints ints, Coordinates coordinates, const Place& place,
                             int tile_cols, int tile, int thread, const ExponentialsParams* params)
        : factor(floats),
          offset(floats),
          sum(floats),
          largest(floats),
          target(ints),
          coordinates(coordinates),
          place(place),
          is_ragged(place.cols_left < tile_cols),
          tile(tile),
          thread(thread),
          params(params) {}

    Floats factor, offset, sum, largest;
    Ints target;  // as a column from place.col on
    Coordinates coordinates;
    Place place;
    bool is_ragged;
    int tile;
    int thread;
    const ExponentialsParams* params;

    CUTLASS_DEVICE void begin() {
      using namespace cute;
      clear(sum);
      fill(largest, float{kNoLogit});  // a copy: fill takes a reference
      load_rows(*params, coordinates, place, factor, offset, target);
    }

    template <typename Acc, int kCount>
    CUTLASS_DEVICE auto visit(const cutlass::Array<Acc, kCount>& acc, int epi_v, int epi_m,
                              int epi_n) {
      return is_ragged ? exponentials<true>(acc, epi_v, epi_m, epi_n)
                       : exponentials<false>(acc, epi_v, epi_m, epi_n);
    }

    template <bool kIsRagged, typename Acc, int kCount>
    CUTLASS_DEVICE auto exponentials(const cutlass::Array<Acc, kCount>& acc, int epi_v, int epi_m,
                                     int epi_n) {
      using namespace cute;
      cutlass::Array<float, kCount> e;
      auto at = coordinates(_, _, _, epi_m, epi_n);
      auto factors = factor(_, _, _, epi_m, epi_n);
      auto offsets = offset(_, _, _, epi_m, epi_n);
      auto sums = sum(_, _, _, epi_m, epi_n);
      auto largests = largest(_, _, _, epi_m, epi_n);
      auto targets = target(_, _, _, epi_m, epi_n);
      CUTLASS_PRAGMA_UNROLL
      for (int v = 0; v < kCount; ++v) {
        const int i = epi_v * kCount + v;
        const int col = get<1>(at(i));
        const float exponent = fmaf(acc[v], factors(i), -offsets(i));
        const bool counts = !kIsRagged || col < place.cols_left;
        if (counts) largests(i) = fmaxf(largests(i), exponent);
        const float power = exp2_of(smaller_of(exponent, kLargestExponent));
        e[v] = counts && col != targets(i) ? power : 0.0f;
        sums(i) += e[v];
      }
      return e;
    }

    // The four lanes of a quad hold the columns of their rows.
    CUTLASS_DEVICE void end() {
      using namespace cute;
      if (params->parts == nullptr) return;
      auto sums = filter_zeros(sum);
      auto largests = filter_zeros(largest);
      CUTLASS_PRAGMA_UNROLL
      for (int i = 0; i < size(sums); ++i) {
        CUTLASS_PRAGMA_UNROLL
        for (int mask = 1; mask < 4; mask *= 2) {
          sums(i) += __shfl_xor_sync(0xffffffffu, sums(i), mask);
          largests(i) = fmaxf(largests(i), __shfl_xor_sync(0xffffffffu, largests(i), mask));
        }
      }
      if (thread % 4 != 0) return;
      TilePart* const parts = params->parts + tile * params->part_stride;
      for_each_row(sum, coordinates, place, [&](int i, int row) {
        parts[row] = TilePart{sums(i), largests(i)};
      });
    }
  };

  template <bool kBySource, typename... Args>
  CUTLASS_DEVICE auto get_consumer_store_callbacks(
      const fusion::detail::ConsumerStoreArgs<Args...>& args) {
    auto floats = make_row_registers<float, kBySource>(args);
    auto ints = make_row_registers<int, kBySource>(args);
    const int tile = cute::get<1>(args.tile_coord_mnkl);
    return Callbacks<decltype(floats), decltype(ints), decltype(args.tCcD)>(
        floats, ints, args.tCcD, place_of(args), cute::get<1>(args.tile_shape_mnk), tile,
        args.thread_idx, params);
  }
};

}  // namespace flce::cuda::hopper
