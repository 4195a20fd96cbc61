// SPDX-License-Identifier: Apache-2.0
// One row of a tile of logits while it is in cache: bias, softcap, temperature, maximum, one
// exponential a logit, sums. As a template over the instruction set; included by tile_impl.hpp
// only.
#pragma once

#include "cpu/kernels.hpp"
#include "cpu/vec.hpp"

namespace flce::cpu {

template <typename Isa, typename Acc>
struct LossTile : Ops<Isa, Acc> {
  using O = Ops<Isa, Acc>;
  using typename O::Mask;
  using typename O::Vec;
  static constexpr int kLanes = O::kLanes;
  static constexpr Acc kInf = std::numeric_limits<Acc>::infinity();

  // A whole vector, known as such when it is compiled.
  struct Whole {
    constexpr operator std::int64_t() const { return kLanes; }
  };
  // Calls visit(first column, valid columns) for each vector of `cols` columns.
  template <typename Visit>
  [[gnu::always_inline]] static inline void for_each_vec(std::int64_t cols, Visit visit) {
    std::int64_t j = 0;
    for (; j + kLanes <= cols; j += kLanes) visit(j, Whole{});
    if (j < cols) visit(j, cols - j);
  }

  // u = softcap * tanh(z / softcap) / T; `slope` is 1 - tanh^2.
  static Vec capped(Vec z, const LogitMap<Acc>& map, Acc inverse_temperature, Vec& slope) {
    if (map.softcap == Acc(0)) return z * inverse_temperature;
    return O::tanh(z / map.softcap, slope) * map.softcap * inverse_temperature;
  }

  static Vec load_part(const Acc* from, Whole) { return O::load(from); }
  static Vec load_part(const Acc* from, std::int64_t valid) {
    Vec v{};
    for (std::int64_t i = 0; i < valid; ++i) v[i] = from[i];
    return v;
  }

  static void store_part(Acc* to, Vec v, Whole) { O::store(to, v); }
  static void store_part(Acc* to, Vec v, std::int64_t valid) {
    for (std::int64_t i = 0; i < valid; ++i) to[i] = v[i];
  }

  template <typename Valid>
  static void store_kept(const TileRow<Acc>& row, std::int64_t at, Vec v, Valid valid) {
    if constexpr (sizeof(Acc) == 4) {
      if (row.kept_dtype == Dtype::kBF16) {
        auto* to = static_cast<std::uint16_t*>(row.exponentials) + at;
        if constexpr (std::is_same_v<Valid, Whole>) {
          O::store_bf16(to, v);
        } else {
          const auto halves = O::to_bf16(v);
          for (std::int64_t i = 0; i < valid; ++i) to[i] = halves[i];
        }
        return;
      }
    }
    store_part(static_cast<Acc*>(row.exponentials) + at, v, valid);
  }

  // Products -> u in place; keeps z if wanted. Columns beyond the last become -inf up to a whole
  // vector. Returns the maximum of the valid columns, finite.
  static Acc map_row(const TileRow<Acc>& row, Acc* slopes) {
    Vec best = O::splat(-kInf);
    for_each_vec(row.cols, [&](std::int64_t j, auto valid) {
      Vec z = O::load(row.tile + j) * row.map.scale;
      if (row.bias != nullptr) z += load_part(row.bias + j, valid);
      if (row.logits != nullptr) store_part(row.logits + j, z, valid);
      Vec slope = O::splat(Acc(1));
      Vec u = capped(z, row.map, row.inverse_temperature, slope);
      for (std::int64_t i = valid; i < kLanes; ++i) u[i] = -kInf;
      O::store(row.tile + j, u);
      if (row.map.softcap != Acc(0)) O::store(slopes + j, slope);
      best = u > best ? u : best;
    });
    const Acc max = O::max(best);
    constexpr Acc kLowest = std::numeric_limits<Acc>::lowest();
    return max > kLowest ? max : kLowest;
  }

  static std::int64_t first_of(const TileRow<Acc>& row, Acc value) {
    for (std::int64_t j = 0; j < row.cols; ++j) {
      if (row.tile[j] == value) return j;
    }
    return -1;
  }

  // sum of w_j * (max - u_j); a class of weight 0 adds nothing, whatever its logit.
  static Acc weighted_sum(const TileRow<Acc>& row, Acc max) {
    Vec sum{};
    for_each_vec(row.cols, [&](std::int64_t j, auto valid) {
      Vec w =
          row.class_weight != nullptr ? load_part(row.class_weight + j, valid) : O::splat(Acc(1));
      for (std::int64_t i = valid; i < kLanes; ++i) w[i] = Acc(0);
      sum += w == Acc(0) ? Vec{} : w * (max - O::load(row.tile + j));
    });
    return O::sum(sum);
  }

  static void find_best(const TileRow<Acc>& row, Acc max, TileResult<Acc>& result) {
    result.best = max;
    result.best_col = first_of(row, max);
    if (result.best_col >= 0) return;
    result.best = -kInf;
    result.best_col = first_of(row, -kInf);
  }

  // Exponentials, kept if wanted, and their sums.
  static void sum_row(const TileRow<Acc>& row, const Acc* slopes, TileStats<Acc>& stats) {
    const Offset<Acc> offset = O::tile_offset(stats.max);
    Vec others{};
    Vec entropy{};
    for_each_vec(row.cols, [&](std::int64_t j, auto valid) {
      const Vec distance = O::distance(O::load(row.tile + j), offset);
      Vec e = O::exp(distance);
      others += e;
      if (row.wants_entropy) entropy += e == Acc(0) ? Vec{} : e * distance;
      if (row.exponentials == nullptr) return;
      if (row.map.softcap != Acc(0)) e *= O::load(slopes + j);
      store_kept(row, j, e, valid);
    });
    // From the offset to the maximum.
    const Acc shift = -O::distance(stats.max, offset);
    const Acc factor = O::exp(O::splat(shift))[0];
    stats.others = O::sum(others) * factor;
    if (!row.wants_entropy) return;
    const Acc moved = stats.others == Acc(0) ? Acc(0) : stats.others * shift;
    stats.entropy = O::sum(entropy) * factor + moved;
  }

  static TileResult<Acc> tile_row(const TileRow<Acc>& row) {
    Acc slopes[kTileVocab];
    TileResult<Acc> result{};
    result.stats.max = map_row(row, slopes);
    result.best_col = -1;
    if (row.wants_best) find_best(row, result.stats.max, result);
    if (row.wants_weighted) result.stats.weighted = weighted_sum(row, result.stats.max);
    if (row.target < 0) {
      sum_row(row, slopes, result.stats);
      return result;
    }
    // The target's exponential is left out of the sums and of what is kept.
    Acc& target = row.tile[row.target];
    result.target = target;
    result.target_slope = row.map.softcap != Acc(0) ? slopes[row.target] : Acc(1);
    target = -kInf;
    sum_row(row, slopes, result.stats);
    target = result.target;
    return result;
  }
};

}  // namespace flce::cpu
