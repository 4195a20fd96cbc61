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

  // u = softcap * tanh(z / softcap) / T; `slope` is 1 - tanh^2.
  static Vec capped(Vec z, const LogitMap<Acc>& map, Acc inverse_temperature, Vec& slope) {
    if (map.softcap == Acc(0)) return z * inverse_temperature;
    return O::tanh(z / map.softcap, slope) * (map.softcap * inverse_temperature);
  }

  static Vec load_part(const Acc* from, std::int64_t valid) {
    if (valid >= kLanes) return O::load(from);
    Vec v{};
    for (std::int64_t i = 0; i < valid; ++i) v[i] = from[i];
    return v;
  }

  static void store_part(Acc* to, Vec v, std::int64_t valid) {
    if (valid >= kLanes) return O::store(to, v);
    for (std::int64_t i = 0; i < valid; ++i) to[i] = v[i];
  }

  static void store_kept(void* kept, Dtype dtype, std::int64_t at, Vec v, std::int64_t valid) {
    if (dtype != Dtype::kBF16) return store_part(static_cast<Acc*>(kept) + at, v, valid);
    std::uint16_t* to = static_cast<std::uint16_t*>(kept) + at;
    const std::int64_t count = valid < kLanes ? valid : kLanes;
    if (count == kLanes) {
      for (int i = 0; i < kLanes; ++i) to[i] = round_bf16(static_cast<float>(v[i])).bits;
    } else {
      for (std::int64_t i = 0; i < count; ++i) to[i] = round_bf16(static_cast<float>(v[i])).bits;
    }
  }

  // Products -> u in place; keeps z if wanted. Returns the maximum of the valid columns, finite.
  static Acc map_row(const TileRow<Acc>& row, Acc* slopes) {
    Vec best = O::splat(-kInf);
    for (std::int64_t j = 0; j < row.cols; j += kLanes) {
      const std::int64_t valid = row.cols - j;
      Vec z = O::load(row.tile + j) * row.map.scale;
      if (row.bias != nullptr) z += load_part(row.bias + j, valid);
      if (row.logits != nullptr) store_part(row.logits + j, z, valid);
      Vec slope = O::splat(Acc(1));
      Vec u = capped(z, row.map, row.inverse_temperature, slope);
      for (std::int64_t i = valid; i < kLanes; ++i) u[i] = -kInf;
      O::store(row.tile + j, u);
      if (row.map.softcap != Acc(0)) O::store(slopes + j, slope);
      best = u > best ? u : best;
    }
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
    for (std::int64_t j = 0; j < row.cols; j += kLanes) {
      const std::int64_t valid = row.cols - j;
      Vec w =
          row.class_weight != nullptr ? load_part(row.class_weight + j, valid) : O::splat(Acc(1));
      for (std::int64_t i = valid; i < kLanes; ++i) w[i] = Acc(0);
      sum += w == Acc(0) ? Vec{} : w * (max - O::load(row.tile + j));
    }
    return O::sum(sum);
  }

  static void find_best(const TileRow<Acc>& row, Acc max, TileResult<Acc>& result) {
    result.best = max;
    result.best_col = first_of(row, max);
    if (result.best_col >= 0) return;
    result.best = -kInf;
    result.best_col = first_of(row, -kInf);
  }

  // u -> exponentials, kept if wanted, and their sums; the target's are left out.
  static void sum_row(const TileRow<Acc>& row, const Acc* slopes, TileStats<Acc>& stats) {
    Vec others{};
    Vec entropy{};
    for (std::int64_t j = 0; j < row.cols; j += kLanes) {
      const Vec distance = O::load(row.tile + j) - stats.max;
      Vec e = O::exp(distance);
      const std::int64_t at = row.target - j;
      if (at >= 0 && at < kLanes) e[at] = Acc(0);
      others += e;
      if (row.wants_entropy) entropy += e == Acc(0) ? Vec{} : e * distance;
      if (row.exponentials == nullptr) continue;
      if (row.map.softcap != Acc(0)) e *= O::load(slopes + j);
      store_kept(row.exponentials, row.kept_dtype, j, e, row.cols - j);
    }
    stats.others = O::sum(others);
    stats.entropy = row.wants_entropy ? O::sum(entropy) : Acc(0);
  }

  static TileResult<Acc> tile_row(const TileRow<Acc>& row) {
    Acc slopes[kTileVocab];
    TileResult<Acc> result{};
    result.stats.max = map_row(row, slopes);
    result.best_col = -1;
    if (row.wants_best) find_best(row, result.stats.max, result);
    if (row.target >= 0) {
      result.target = row.tile[row.target];
      result.target_slope = row.map.softcap != Acc(0) ? slopes[row.target] : Acc(1);
    }
    sum_row(row, slopes, result.stats);
    if (row.wants_weighted) result.stats.weighted = weighted_sum(row, result.stats.max);
    return result;
  }
};

}  // namespace flce::cpu
