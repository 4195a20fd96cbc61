// SPDX-License-Identifier: Apache-2.0
// The visitors of the two products that make gradients from exponentials: they scale, and see to it
// that the target's terms are added in f32 before the only rounding.
#pragma once

#include <cuda_bf16.h>

#include "kernels/hopper/halves.cuh"
#include "kernels/hopper/visitor.cuh"

namespace flce::cuda::hopper {

struct HiddenParams {
  const float* row_scale;    // v_i
  const float* target_term;  // t_i
  const int* target;         // y_i
  const float* alpha;
  const float* smoothing;  // q_i; null: none
  const float* class_sum;
  const __nv_bfloat16* w;
  std::int64_t w_row_stride;
};

// alpha * (v_i * sum + t_i * W[y_i] - q_i * class_sum). A row of few columns and a long sum: what
// is gathered here is nothing beside it.
struct HiddenVisitor : VisitorBase<HiddenParams> {
  using VisitorBase::VisitorBase;

  template <typename Floats, typename Ints, typename Coordinates>
  struct Callbacks : fusion::EmptyConsumerStoreCallbacks {
    CUTLASS_DEVICE Callbacks(Floats floats, Ints ints, Coordinates coordinates, const Place& place,
                             const HiddenParams* params)
        : scale(floats),
          term(floats),
          smoothing(floats),
          target(ints),
          coordinates(coordinates),
          place(place),
          params(params) {}

    Floats scale, term, smoothing;
    Ints target;
    Coordinates coordinates;
    Place place;
    const HiddenParams* params;

    CUTLASS_DEVICE void begin() {
      using namespace cute;
      clear(scale);
      clear(term);
      clear(smoothing);
      clear(target);
      auto scales = filter_zeros(scale);
      auto terms = filter_zeros(term);
      auto smoothings = filter_zeros(smoothing);
      auto targets = filter_zeros(target);
      const float alpha = *params->alpha;
      for_each_row(scale, coordinates, place, [&](int i, int row) {
        scales(i) = alpha * params->row_scale[row];
        terms(i) = alpha * params->target_term[row];
        targets(i) = params->target[row];
        if (params->smoothing != nullptr) smoothings(i) = alpha * params->smoothing[row];
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
      auto smoothings = smoothing(_, _, _, epi_m, epi_n);
      // A thread's columns come in pairs, and H is even.
      CUTLASS_PRAGMA_UNROLL
      for (int v = 0; v < kCount; v += 2) {
        const int i = epi_v * kCount + v;
        const int col = get<1>(at(i));
        // Zero by selection: 0 * NaN in a sum or in a weight is not 0.
        grad[v] = scales(i) != 0.0f ? scales(i) * acc[v] : 0.0f;
        grad[v + 1] = scales(i) != 0.0f ? scales(i) * acc[v + 1] : 0.0f;
        if (col >= place.cols_left) continue;
        if (smoothings(i) != 0.0f) {
          const float2 sum = *reinterpret_cast<const float2*>(params->class_sum + place.col + col);
          grad[v] = fmaf(-smoothings(i), sum.x, grad[v]);
          grad[v + 1] = fmaf(-smoothings(i), sum.y, grad[v + 1]);
        }
        if (terms(i) == 0.0f) continue;
        const unsigned pair = *reinterpret_cast<const unsigned*>(
            params->w + targets(i) * params->w_row_stride + place.col + col);
        grad[v] = fmaf(terms(i), __uint_as_float(pair << 16), grad[v]);
        grad[v + 1] = fmaf(terms(i), __uint_as_float(pair & 0xffff0000u), grad[v + 1]);
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
  const int* first_token;  // (V): -1: no token's target
  std::uint16_t* lower;    // (min(C, V), H)
  const float* alpha;
  int hidden;
  bool is_by_col;  // which row of `lower`: the column's, or the first token's
};

// alpha * sum, transposed: a column of the tile is a row of the vocabulary. Where that is a token's
// target the sum stays whole, for what is added to it later: without its lower half in D, with that
// half in a table. Stores wait for nothing; what a gather of the targets' terms took here was 3 %
// of the product.
struct WeightVisitor : VisitorBase<WeightParams> {
  using VisitorBase::VisitorBase;

  template <typename Coordinates>
  struct Callbacks : fusion::EmptyConsumerStoreCallbacks {
    CUTLASS_DEVICE Callbacks(Coordinates coordinates, const Place& place,
                             const WeightParams* params)
        : coordinates(coordinates), place(place), params(params) {}

    Coordinates coordinates;
    Place place;
    const WeightParams* params;
    float alpha = 1.0f;

    CUTLASS_DEVICE void begin() { alpha = *params->alpha; }

    template <typename Acc, int kCount>
    CUTLASS_DEVICE auto visit(const cutlass::Array<Acc, kCount>& acc, int epi_v, int epi_m,
                              int epi_n) {
      using namespace cute;
      const auto at = coordinates(_, _, _, epi_m, epi_n);
      cutlass::Array<float, kCount> grad;
      cutlass::Array<int, kCount> first;
      bool any = false;
      CUTLASS_PRAGMA_UNROLL
      for (int v = 0; v < kCount; ++v) {
        const int col = get<1>(at(epi_v * kCount + v));
        grad[v] = alpha * acc[v];
        first[v] = col < place.cols_left ? __ldg(params->first_token + place.col + col) : -1;
        any |= first[v] >= 0;
      }
      if (any) split(grad, first, epi_v, epi_m, epi_n);
      return grad;
    }

    template <int kCount>
    CUTLASS_DEVICE void split(cutlass::Array<float, kCount>& grad,
                              const cutlass::Array<int, kCount>& first, int epi_v, int epi_m,
                              int epi_n) {
      using namespace cute;
      const auto at = coordinates(_, _, _, epi_m, epi_n);
      CUTLASS_PRAGMA_UNROLL
      for (int v = 0; v < kCount; ++v) {
        const auto here = at(epi_v * kCount + v);
        if (first[v] < 0 || get<0>(here) >= place.rows_left) continue;
        const int row = params->is_by_col ? place.col + get<1>(here) : first[v];
        params->lower[std::int64_t{row} * params->hidden + place.row + get<0>(here)] =
            lower_half(grad[v]);
        grad[v] = without_lower_half(grad[v]);
      }
    }
  };

  template <bool kBySource, typename... Args>
  CUTLASS_DEVICE auto get_consumer_store_callbacks(
      const fusion::detail::ConsumerStoreArgs<Args...>& args) {
    return Callbacks<decltype(args.tCcD)>(args.tCcD, place_of(args), params);
  }
};

}  // namespace flce::cuda::hopper
