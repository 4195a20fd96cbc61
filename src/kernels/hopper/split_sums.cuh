// SPDX-License-Identifier: Apache-2.0
// The visitor that adds a product to f32 sums kept as two halves (halves.cuh). Both halves come and
// go through the pipelines of shared memory that CUTLASS has for its epilogues: the upper ones as
// its C and D, the lower ones as auxiliary operands.
#pragma once

#include "kernels/hopper/halves.cuh"
#include "kernels/hopper/visitor.cuh"

namespace flce::cuda::hopper {

struct SplitSumParams {
  const float* alpha;  // null: 1
  bool is_first;       // nothing is there yet
  bool is_last;        // what is there becomes bf16
};

// The arithmetic, given the old halves.
struct SplitSum : VisitorBase<SplitSumParams> {
  using VisitorBase::VisitorBase;
  struct Callbacks : fusion::EmptyConsumerStoreCallbacks {
    CUTLASS_DEVICE explicit Callbacks(const SplitSumParams* params) : params(params) {}
    CUTLASS_DEVICE void begin() {
      if (params->alpha != nullptr) alpha = *params->alpha;
    }
    const SplitSumParams* params;
    float alpha = 1.0f;
  };
  template <bool kBySource, typename... Args>
  CUTLASS_DEVICE auto get_consumer_store_callbacks(
      const fusion::detail::ConsumerStoreArgs<Args...>&) {
    return Callbacks(params);
  }
};

// The lower halves' loads and stores, in the stages and layouts that CUTLASS has for the upper
// ones.
template <typename Shape, typename Layout>
struct LowerHalves {
  using Half = std::uint16_t;
  using Epilogue = cutlass::epilogue::collective::detail::EpilogueDescriptor<
      typename Shape::Tile, cutlass::epilogue::collective::EpilogueTileAuto, Bf16, Bf16,
      typename Shape::StoreSchedule>;
  using In = cutlass::epilogue::collective::detail::AuxLoadDescriptor<Epilogue, Layout, Half>;
  using Out = cutlass::epilogue::collective::detail::AuxStoreDescriptor<Epilogue, Layout, Half>;
  using Load = fusion::Sm90AuxLoad<In::Stages, typename In::EpilogueTile, Half, typename In::Stride,
                                   typename In::SmemLayoutAtom, typename In::CopyOpS2R>;
  using Store =
      fusion::Sm90AuxStore<Out::Stages, typename Out::EpilogueTile, Half,
                           cutlass::FloatRoundStyle::round_to_nearest, typename Out::Stride,
                           typename Out::SmemLayoutAtom, typename Out::CopyOpR2S>;
};

template <typename Shape, typename Layout>
using SplitSumParts =
    fusion::Sm90VisitorImpl<fusion::Sm90SrcFetch<Bf16>, typename LowerHalves<Shape, Layout>::Load,
                            typename LowerHalves<Shape, Layout>::Store, SplitSum>;

template <typename Shape, typename Layout>
struct SplitSumVisitor : SplitSumParts<Shape, Layout> {
  using Base = SplitSumParts<Shape, Layout>;
  using Base::Base;

  CUTLASS_DEVICE bool is_producer_load_needed() const { return is_C_load_needed(); }
  CUTLASS_DEVICE bool is_C_load_needed() const { return !cute::get<3>(Base::ops).params->is_first; }

  template <typename Impl>
  struct Callbacks : Impl {
    CUTLASS_DEVICE explicit Callbacks(const Impl& impl) : Impl(impl) {}
    using Impl::callbacks_tuple;

    template <typename Acc, int kCount>
    CUTLASS_DEVICE auto visit(const cutlass::Array<Acc, kCount>& acc, int epi_v, int epi_m,
                              int epi_n) {
      using namespace cute;
      const auto upper = get<0>(callbacks_tuple).visit(acc, epi_v, epi_m, epi_n);
      const auto lower = get<1>(callbacks_tuple).visit(acc, epi_v, epi_m, epi_n);
      const auto& own = get<3>(callbacks_tuple);
      const bool is_first = own.params->is_first;
      const bool is_last = own.params->is_last;
      cutlass::Array<float, kCount> out;
      cutlass::Array<std::uint16_t, kCount> rest;
      CUTLASS_PRAGMA_UNROLL
      for (int v = 0; v < kCount; ++v) {
        const float old =
            is_first ? 0.0f
                     : __uint_as_float(__float_as_uint(static_cast<float>(upper[v])) | lower[v]);
        const float sum = fmaf(own.alpha, acc[v], old);
        rest[v] = lower_half(sum);
        out[v] = is_last ? sum : without_lower_half(sum);
      }
      get<2>(callbacks_tuple).visit(acc, epi_v, epi_m, epi_n, rest);
      return out;
    }
  };

  template <bool kBySource, typename... Args>
  CUTLASS_DEVICE auto get_consumer_store_callbacks(
      const fusion::detail::ConsumerStoreArgs<Args...>& args) {
    auto impl = Base::template get_consumer_store_callbacks<kBySource>(args);
    return Callbacks<decltype(impl)>(impl);
  }
};

// sum += alpha * A B, a gradient transposed; D of `product` is the upper halves.
template <typename Shape, typename LayoutB>
cudaError_t launch_split_sum(ProductArgs product, const Halves& sum, const SplitSumParams& params,
                             cudaStream_t stream) {
  using Visitor = SplitSumVisitor<Shape, ColumnMajor>;
  using Kernel =
      typename Product<Shape, ColumnMajor, LayoutB, Bf16, Visitor, Bf16, ColumnMajor>::Kernel;
  auto* const lower = static_cast<std::uint16_t*>(sum.lower);
  product.d = sum.upper;
  product.d_stride = sum.upper_row_stride;
  typename Visitor::Arguments visitor{};
  visitor.op_1.ptr_aux = lower;
  set_stride(visitor.op_1.dAux, sum.lower_row_stride);
  visitor.op_2.ptr_aux = params.is_last ? nullptr : lower;
  set_stride(visitor.op_2.dAux, sum.lower_row_stride);
  visitor.op_3 = params;
  return launch_product<Shape, Kernel>(product, visitor, stream);
}

}  // namespace flce::cuda::hopper
