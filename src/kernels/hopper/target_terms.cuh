// SPDX-License-Identifier: Apache-2.0
// The visitors of the two products that make gradients from exponentials: they scale, and add the
// target's terms in f32 before the only rounding.
#pragma once

#include <cuda_bf16.h>

#include "kernels/hopper/visitor.cuh"

namespace flce::cuda::hopper {

struct HiddenParams {
  const float* row_scale;    // v_i
  const float* target_term;  // t_i
  const int* target;         // y_i
  const float* alpha;
  const __nv_bfloat16* w;
  std::int64_t w_row_stride;
};

// alpha * (v_i * sum + t_i * W[y_i]). A row of few columns and a long sum: what is gathered here is
// nothing beside it.
struct HiddenVisitor : VisitorBase<HiddenParams> {
  using VisitorBase::VisitorBase;

  template <typename Floats, typename Ints, typename Coordinates>
  struct Callbacks : fusion::EmptyConsumerStoreCallbacks {
    CUTLASS_DEVICE Callbacks(Floats floats, Ints ints, Coordinates coordinates, const Place& place,
                             const HiddenParams* params)
        : scale(floats),
          term(floats),
          target(ints),
          coordinates(coordinates),
          place(place),
          params(params) {}

    Floats scale, term;
    Ints target;
    Coordinates coordinates;
    Place place;
    const HiddenParams* params;

    CUTLASS_DEVICE void begin() {
      using namespace cute;
      clear(scale);
      clear(term);
      clear(target);
      auto scales = filter_zeros(scale);
      auto terms = filter_zeros(term);
      auto targets = filter_zeros(target);
      const float alpha = *params->alpha;
      for_each_row(scale, coordinates, place, [&](int i, int row) {
        scales(i) = alpha * params->row_scale[row];
        terms(i) = alpha * params->target_term[row];
        targets(i) = params->target[row];
      });
    }

    template <typename Acc, int kCount>
    CUTLASS_DEVICE auto visit(const cutlass::Array<Acc, kCount>& acc, int epi_v, int epi_m,
                              int epi_n) {
      using namespace cute;
      cutlass::Array<float, kCount> grad;
      auto at = coordinates(_, _, _, epi_m, epi_n);
      auto scales = scale(_, _, _, epi_m, epi_n);
      auto terms = term(_, _, _, epi_m, epi_n);
      auto targets = target(_, _, _, epi_m, epi_n);
      CUTLASS_PRAGMA_UNROLL
      for (int v = 0; v < kCount; ++v) {
        const int i = epi_v * kCount + v;
        const int col = get<1>(at(i));
        float sum = 0.0f;
        // Zero by selection: 0 * NaN in a sum or in a weight is not 0.
        if (scales(i) != 0.0f) sum = scales(i) * acc[v];
        if (terms(i) != 0.0f && col < place.cols_left) {
          const __nv_bfloat16 w = params->w[targets(i) * params->w_row_stride + place.col + col];
          sum = fmaf(terms(i), __bfloat162float(w), sum);
        }
        grad[v] = sum;
      }
      return grad;
    }
  };

  template <bool kBySource, typename... Args>
  CUTLASS_DEVICE auto get_consumer_store_callbacks(
      const fusion::detail::ConsumerStoreArgs<Args...>& args) {
    auto floats = make_row_registers<float, kBySource>(args);
    auto ints = make_row_registers<int, kBySource>(args);
    return Callbacks<decltype(floats), decltype(ints), decltype(args.tCcD)>(floats, ints, args.tCcD,
                                                                            place_of(args), params);
  }
};

struct WeightParams {
  const int* sum_of;         // (V): a row of target_sums, -1: none
  const float* target_sums;  // (C, H)
  const float* alpha;
  int hidden;
};

// alpha * (sum + target_sums[sum_of[j]]). Few rows of a vocabulary are anyone's target: a thread
// looks once a fragment.
struct WeightVisitor : VisitorBase<WeightParams> {
  using VisitorBase::VisitorBase;

  template <typename Ints, typename Coordinates>
  struct Callbacks : fusion::EmptyConsumerStoreCallbacks {
    CUTLASS_DEVICE Callbacks(Ints ints, Coordinates coordinates, const Place& place,
                             const WeightParams* params)
        : sum_of(ints), coordinates(coordinates), place(place), params(params) {}

    Ints sum_of;
    Coordinates coordinates;
    Place place;
    const WeightParams* params;
    float alpha = 1.0f;

    CUTLASS_DEVICE void begin() {
      using namespace cute;
      alpha = *params->alpha;
      fill(sum_of, -1);
      auto sums = filter_zeros(sum_of);
      for_each_row(sum_of, coordinates, place,
                   [&](int i, int row) { sums(i) = params->sum_of[row]; });
    }

    template <typename Acc, int kCount>
    CUTLASS_DEVICE auto visit(const cutlass::Array<Acc, kCount>& acc, int epi_v, int epi_m,
                              int epi_n) {
      using namespace cute;
      cutlass::Array<float, kCount> grad;
      CUTLASS_PRAGMA_UNROLL
      for (int v = 0; v < kCount; ++v) grad[v] = acc[v];
      add_target_sums(grad, epi_v, epi_m, epi_n);
      CUTLASS_PRAGMA_UNROLL
      for (int v = 0; v < kCount; ++v) grad[v] *= alpha;
      return grad;
    }

    template <int kCount>
    CUTLASS_DEVICE void add_target_sums(cutlass::Array<float, kCount>& grad, int epi_v, int epi_m,
                                        int epi_n) {
      using namespace cute;
      auto at = coordinates(_, _, _, epi_m, epi_n);
      auto sums = sum_of(_, _, _, epi_m, epi_n);
      bool any = false;
      CUTLASS_PRAGMA_UNROLL
      for (int v = 0; v < kCount; ++v) any |= sums(epi_v * kCount + v) >= 0;
      if (!any) return;
      CUTLASS_PRAGMA_UNROLL
      for (int v = 0; v < kCount; ++v) {
        const int i = epi_v * kCount + v;
        const int col = get<1>(at(i));
        if (sums(i) >= 0 && col < place.cols_left) {
          grad[v] += params->target_sums[std::int64_t{sums(i)} * params->hidden + place.col + col];
        }
      }
    }
  };

  template <bool kBySource, typename... Args>
  CUTLASS_DEVICE auto get_consumer_store_callbacks(
      const fusion::detail::ConsumerStoreArgs<Args...>& args) {
    auto ints = make_row_registers<int, kBySource>(args);
    return Callbacks<decltype(ints), decltype(args.tCcD)>(ints, args.tCcD, place_of(args), params);
  }
};

}  // namespace flce::cuda::hopper
