// SPDX-License-Identifier: Apache-2.0
// The visitor of the first product for calls that ask for more than the plain one
// (exponentials.cuh) gives: a bias, a softcap, the entropy and its gradient, the largest logit's
// place.
#pragma once

#include "kernels/hopper/exponentials.cuh"

namespace flce::cuda::hopper {

struct OptionsParams {
  const float* factor;
  const float* offset;
  const int* target;
  int first_col;
  OptionsPart* parts;
  std::int64_t part_stride;
  LogitOptions logit;
};

inline OptionsParams options_params_of(const Exponentials& e) {
  return {e.tokens.factor,
          e.tokens.offset,
          e.tokens.target,
          e.first_col,
          static_cast<OptionsPart*>(e.parts),
          e.part_stride,
          e.options};
}

// Exponents below this are those of zeros; what is multiplied by them must be finite.
constexpr float kSmallestExponent = -200.0f;

struct Capped {
  float logit, slope;
};

CUTLASS_DEVICE float reciprocal_of(float x) {
  float y;
  asm("rcp.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
  return y;
}

// softcap * tanh(z / softcap) to some 2^-23 of the softcap, and 1 - tanh^2: with p = e^(-2 |y|) and
// q = p / (1 + p), tanh |y| = 1 - 2q and 1 - tanh^2 = 4q / (1 + p).
CUTLASS_DEVICE Capped cap_of(float z, float softcap, float inverse) {
  constexpr float kTwoLog2E = 2.885390082f;
  const float power = exp2_of(-kTwoLog2E * inverse * fabsf(z));
  const float reciprocal = reciprocal_of(1.0f + power);
  const float q = power * reciprocal;
  return {copysignf(fmaf(-2.0f * softcap, q, softcap), z), 4.0f * q * reciprocal};
}

// `kKeeps`: the exponentials are stored.
template <bool kKeeps>
struct OptionsVisitor : VisitorBase<OptionsParams> {
  using Base = VisitorBase<OptionsParams>;
  using Base::Base;
  using Base::params;
  using ElementAux = Bf16;

  template <typename Floats, typename Ints, typename Coordinates>
  struct Callbacks : fusion::EmptyConsumerStoreCallbacks {
    CUTLASS_DEVICE Callbacks(Floats floats, Ints ints, Coordinates coordinates, const Place& place,
                             int tile, int thread, const OptionsParams* params)
        : factor(floats),
          offset(floats),
          sum(floats),
          entropy(floats),
          best(floats),
          target(ints),
          best_col(ints),
          coordinates(coordinates),
          place(place),
          tile(tile),
          thread(thread),
          params(params) {}

    Floats factor, offset, sum, entropy, best;
    Ints target, best_col;  // as columns from place.col on
    Coordinates coordinates;
    Place place;
    int tile;
    int thread;
    const OptionsParams* params;

    CUTLASS_DEVICE void begin() {
      using namespace cute;
      clear(sum);
      clear(entropy);
      fill(best, float{kNoLogit});  // a copy: fill takes a reference
      fill(best_col, -1);
      load_rows(*params, coordinates, place, factor, offset, target);
    }

    // Each combination is code of its own, for a fragment at a time.
    template <typename Acc, int kCount>
    CUTLASS_DEVICE auto visit(const cutlass::Array<Acc, kCount>& acc, int epi_v, int epi_m,
                              int epi_n) {
      const LogitOptions& logit = params->logit;
      const auto z = biased(acc, epi_v, epi_m, epi_n);
      if constexpr (kKeeps) {
        if (logit.gradient != nullptr) {
          return logit.softcap != 0.0f ? exponentials<true, true>(z, epi_v, epi_m, epi_n)
                                       : exponentials<false, true>(z, epi_v, epi_m, epi_n);
        }
      }
      return logit.softcap != 0.0f ? exponentials<true, false>(z, epi_v, epi_m, epi_n)
                                   : exponentials<false, false>(z, epi_v, epi_m, epi_n);
    }

    // Scale and bias.
    template <typename Acc, int kCount>
    CUTLASS_DEVICE auto biased(const cutlass::Array<Acc, kCount>& acc, int epi_v, int epi_m,
                               int epi_n) const {
      using namespace cute;
      cutlass::Array<float, kCount> z;
      CUTLASS_PRAGMA_UNROLL
      for (int v = 0; v < kCount; ++v) z[v] = acc[v] * params->logit.scale;
      if (params->logit.bias == nullptr) return z;
      const float* const bias = params->logit.bias + place.col;
      auto at = coordinates(_, _, _, epi_m, epi_n);
      CUTLASS_PRAGMA_UNROLL
      for (int v = 0; v < kCount; ++v) {
        const int col = get<1>(at(epi_v * kCount + v));
        if (col < place.cols_left) z[v] += __ldg(bias + col);
      }
      return z;
    }

    // What an exponential is multiplied by to be the gradient.
    CUTLASS_DEVICE float gradient_of(float exponent, int row) const {
      if (row >= place.rows_left) return 0.0f;
      const float2 line = __ldg(params->logit.gradient + place.row + row);
      return fmaf(line.y, exponent, line.x);
    }

    template <bool kHasCap, bool kIsGradient, int kCount>
    CUTLASS_DEVICE auto exponentials(const cutlass::Array<float, kCount>& z, int epi_v, int epi_m,
                                     int epi_n) {
      using namespace cute;
      cutlass::Array<float, kCount> e;
      auto at = coordinates(_, _, _, epi_m, epi_n);
      auto factors = factor(_, _, _, epi_m, epi_n);
      auto offsets = offset(_, _, _, epi_m, epi_n);
      auto sums = sum(_, _, _, epi_m, epi_n);
      auto entropies = entropy(_, _, _, epi_m, epi_n);
      auto bests = best(_, _, _, epi_m, epi_n);
      auto best_cols = best_col(_, _, _, epi_m, epi_n);
      auto targets = target(_, _, _, epi_m, epi_n);
      CUTLASS_PRAGMA_UNROLL
      for (int v = 0; v < kCount; ++v) {
        const int i = epi_v * kCount + v;
        const int col = get<1>(at(i));
        const bool counts = col < place.cols_left;
        Capped u{z[v], 1.0f};
        if constexpr (kHasCap) {
          u = cap_of(z[v], params->logit.softcap, params->logit.inverse_softcap);
        }
        const bool is_other = counts && col != targets(i);
        float exponent = smaller_of(fmaf(u.logit, factors(i), -offsets(i)), kLargestExponent);
        const float power = is_other ? exp2_of(exponent) : 0.0f;
        exponent = fmaxf(exponent, kSmallestExponent);
        if constexpr (kIsGradient) {
          u.slope *= gradient_of(exponent, get<0>(at(i)));
        } else {
          sums(i) += power;
          entropies(i) = fmaf(power, exponent, entropies(i));
          const bool is_best = counts && u.logit > bests(i);
          bests(i) = is_best ? u.logit : bests(i);
          best_cols(i) = is_best ? col : best_cols(i);
        }
        e[v] = kHasCap || kIsGradient ? (is_other ? power * u.slope : 0.0f) : power;
      }
      return e;
    }

    // The four lanes of a quad hold the columns of their rows.
    CUTLASS_DEVICE void end() {
      using namespace cute;
      if (params->parts == nullptr) return;
      auto sums = filter_zeros(sum);
      auto entropies = filter_zeros(entropy);
      auto bests = filter_zeros(best);
      auto best_cols = filter_zeros(best_col);
      CUTLASS_PRAGMA_UNROLL
      for (int i = 0; i < size(sums); ++i) {
        // Each lane of a quad counts columns from a place of its own.
        if (best_cols(i) >= 0) best_cols(i) += params->first_col + place.col;
        CUTLASS_PRAGMA_UNROLL
        for (int mask = 1; mask < 4; mask *= 2) {
          sums(i) += __shfl_xor_sync(0xffffffffu, sums(i), mask);
          entropies(i) += __shfl_xor_sync(0xffffffffu, entropies(i), mask);
          const float logit = __shfl_xor_sync(0xffffffffu, bests(i), mask);
          const int col = __shfl_xor_sync(0xffffffffu, best_cols(i), mask);
          // Of equal ones the first; unsigned: none is the last.
          const bool is_first = static_cast<unsigned>(col) < static_cast<unsigned>(best_cols(i));
          if (logit > bests(i) || (logit == bests(i) && is_first)) {
            bests(i) = logit;
            best_cols(i) = col;
          }
        }
      }
      if (thread % 4 != 0) return;
      OptionsPart* const parts = params->parts + tile * params->part_stride;
      for_each_row(sum, coordinates, place, [&](int i, int row) {
        parts[row] = OptionsPart{sums(i), entropies(i), bests(i), best_cols(i)};
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
        floats, ints, args.tCcD, place_of(args), tile, args.thread_idx, params);
  }
};

}  // namespace flce::cuda::hopper
