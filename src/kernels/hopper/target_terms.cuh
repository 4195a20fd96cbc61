// SPDX-License-Identifier: Apache-2.0
// The visitors of the two products that make gradients from exponentials: they scale, and see to it
// that the target's terms are added in f32 before the only rounding.
#pragma once

#include "kernels/hopper/halves.cuh"
#include "kernels/hopper/hidden_gradient.cuh"
#include "kernels/hopper/visitor.cuh"

namespace flce::cuda::hopper {

struct HiddenParams {
  const float* row_scale;    // v_i
  const float* target_term;  // t_i
  const float* alpha;
  const float* smoothing;  // q_i; null: none
  const float* class_sum;
};

// alpha * (v_i * sum + t_i * C - q_i * class_sum), transposed: a column of the tile is a token, and
// its column of C is W[y_i]. A tile's sum is long: what is read here is nothing beside it.
struct HiddenVisitor : VisitorBase<HiddenParams> {
  using VisitorBase::VisitorBase;
  CUTLASS_DEVICE bool is_producer_load_needed() const { return true; }
  CUTLASS_DEVICE bool is_C_load_needed() const { return true; }

  template <typename Source, typename Coordinates>
  struct Callbacks : fusion::EmptyConsumerStoreCallbacks {
    CUTLASS_DEVICE Callbacks(const Source& source, Coordinates coordinates, const Place& place,
                             const HiddenParams* params)
        : source(source), coordinates(coordinates), place(place), params(params) {}

    const Source& source;
    Coordinates coordinates;
    Place place;
    const HiddenParams* params;
    float alpha = 1.0f;

    CUTLASS_DEVICE void begin() { alpha = *params->alpha; }

    template <typename Acc, int kCount>
    CUTLASS_DEVICE auto visit(const cutlass::Array<Acc, kCount>& acc, int epi_v, int epi_m,
                              int epi_n) {
      using namespace cute;
      using Of = cutlass::Array<typename Source::value_type, kCount>;
      const Of of_target = recast<Of>(source)(epi_v);
      const auto at = coordinates(_, _, _, epi_m, epi_n);
      cutlass::Array<float, kCount> grad;
      CUTLASS_PRAGMA_UNROLL
      for (int v = 0; v < kCount; ++v) {
        // What is made of the last token beyond the matrix is not stored.
        const int token = place.col + min(get<1>(at(epi_v * kCount + v)), place.cols_left - 1);
        const float scale = alpha * params->row_scale[token];
        const float term = alpha * params->target_term[token];
        grad[v] = hidden_gradient(scale, acc[v], term, static_cast<float>(of_target[v]));
      }
      if (params->smoothing != nullptr) subtract_class_sum(grad, epi_v, epi_m, epi_n);
      return grad;
    }

    template <int kCount>
    CUTLASS_DEVICE void subtract_class_sum(cutlass::Array<float, kCount>& grad, int epi_v,
                                           int epi_m, int epi_n) {
      using namespace cute;
      const auto at = coordinates(_, _, _, epi_m, epi_n);
      CUTLASS_PRAGMA_UNROLL
      for (int v = 0; v < kCount; ++v) {
        const auto here = at(epi_v * kCount + v);
        if (get<0>(here) >= place.rows_left || get<1>(here) >= place.cols_left) continue;
        const float smoothing = alpha * params->smoothing[place.col + get<1>(here)];
        grad[v] = less_smoothing(grad[v], smoothing, params->class_sum[place.row + get<0>(here)]);
      }
    }
  };

  template <bool kBySource, typename... Args>
  CUTLASS_DEVICE auto get_consumer_store_callbacks(
      const fusion::detail::ConsumerStoreArgs<Args...>& args) {
    return Callbacks<cute::remove_cvref_t<decltype(args.tCrC)>, decltype(args.tCcD)>(
        args.tCrC, args.tCcD, place_of(args), params);
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

  template <typename Coordinates, typename Columns>
  struct Callbacks : fusion::EmptyConsumerStoreCallbacks {
    CUTLASS_DEVICE Callbacks(Coordinates coordinates, Columns columns, const Place& place,
                             const WeightParams* params)
        : coordinates(coordinates), columns(columns), place(place), params(params) {}

    Coordinates coordinates;
    Columns columns;
    Place place;
    const WeightParams* params;
    float alpha = 1.0f;
    std::uint64_t is_target = 0;  // a bit for each of the thread's columns

    CUTLASS_DEVICE void begin() {
      using namespace cute;
      static_assert(cosize_v<typename Columns::layout_type> <= 64);
      alpha = *params->alpha;
      const auto at = filter_zeros(coordinates, columns.stride());
      is_target = 0;
      // Not unrolled: all loads at once take more registers than the sums leave.
#pragma unroll 8
      for (int i = 0; i < size(at); ++i) {
        const int col = get<1>(at(i));
        const int first = params->first_token[place.col + min(col, place.cols_left - 1)];
        is_target |= std::uint64_t{first >= 0 && col < place.cols_left} << i;
      }
    }

    template <typename Acc, int kCount>
    CUTLASS_DEVICE auto visit(const cutlass::Array<Acc, kCount>& acc, int epi_v, int epi_m,
                              int epi_n) {
      using namespace cute;
      const auto column = columns(_, _, _, epi_m, epi_n);
      cutlass::Array<float, kCount> grad;
      std::uint64_t here = 0;
      CUTLASS_PRAGMA_UNROLL
      for (int v = 0; v < kCount; ++v) {
        grad[v] = alpha * acc[v];
        here |= std::uint64_t{1} << column(epi_v * kCount + v);
      }
      if ((is_target & here) != 0) split(grad, epi_v, epi_m, epi_n);
      return grad;
    }

    template <int kCount>
    CUTLASS_DEVICE void split(cutlass::Array<float, kCount>& grad, int epi_v, int epi_m,
                              int epi_n) {
      using namespace cute;
      const auto at = coordinates(_, _, _, epi_m, epi_n);
      const auto column = columns(_, _, _, epi_m, epi_n);
      CUTLASS_PRAGMA_UNROLL
      for (int v = 0; v < kCount; ++v) {
        const int i = epi_v * kCount + v;
        const int row = get<0>(at(i));
        const int col = place.col + get<1>(at(i));
        if ((is_target >> column(i) & 1) == 0 || row >= place.rows_left) continue;
        const std::int64_t lower_row = params->is_by_col ? col : params->first_token[col];
        params->lower[lower_row * params->hidden + place.row + row] = lower_half(grad[v]);
        grad[v] = without_lower_half(grad[v]);
      }
    }
  };

  template <bool kBySource, typename... Args>
  CUTLASS_DEVICE auto get_consumer_store_callbacks(
      const fusion::detail::ConsumerStoreArgs<Args...>& args) {
    const auto columns = number_columns<kBySource>(args);
    return Callbacks<decltype(args.tCcD), cute::remove_cvref_t<decltype(columns)>>(
        args.tCcD, columns, place_of(args), params);
  }
};

}  // namespace flce::cuda::hopper
