// SPDX-License-Identifier: Apache-2.0
// The tile kernels of every instruction set that this processor has, against plain loops in double.
#include <gtest/gtest.h>

#include <array>
#include <cmath>
#include <cstring>
#include <limits>
#include <random>
#include <vector>

#include "cpu/kernels.hpp"
#include "cpu/offset.hpp"
#include "math/round.hpp"
#include "support/wide_tiles.hpp"

namespace flce::cpu {
namespace {

// All that this processor can run, and the wide ones in halves; those of bf16 pairs if asked for.
std::vector<const Kernels<float>*> tables(bool with_pairs = false) {
  std::vector<const Kernels<float>*> all{&portable_kernels<float>(), &wide_kernels<float>()};
  if (with_pairs) all.push_back(&wide_pairs_kernels());
#if defined(__x86_64__)
  if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma")) {
    all.push_back(&avx2_kernels<float>());
  }
  if (__builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
      __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl")) {
    all.push_back(&avx512_kernels<float>());
    if (with_pairs && __builtin_cpu_supports("avx512bf16")) all.push_back(&avx512bf16_kernels());
  }
#endif
  return all;
}

// A matrix in bf16, and the same numbers in f32: what every table can multiply.
struct Matrix {
  std::vector<BF16> narrow;
  std::vector<float> wide;
  Matrix(std::int64_t rows, std::int64_t cols, unsigned seed);
  const void* data(Dtype dtype) const {
    return dtype == Dtype::kBF16 ? static_cast<const void*>(narrow.data()) : wide.data();
  }
};

std::vector<float> randoms(std::size_t count, unsigned seed, float scale = 1.0f) {
  std::mt19937 engine(seed);
  std::normal_distribution<float> normal(0.0f, scale);
  std::vector<float> values(count);
  for (float& v : values) v = normal(engine);
  return values;
}

Matrix::Matrix(std::int64_t rows, std::int64_t cols, unsigned seed) {
  for (const float v : randoms(static_cast<std::size_t>(rows * cols), seed)) {
    narrow.push_back(round_bf16(v));
    wide.push_back(widen(narrow.back()));
  }
}

constexpr float kNaN = std::numeric_limits<float>::quiet_NaN();

// c = a . b^T for a (rows, depth), b (cols, depth).
void check_product(const Kernels<float>& k, const Matrix& a, const Matrix& b,
                   const std::vector<float>& c, std::array<std::int64_t, 3> shape,
                   std::int64_t stride, double start) {
  const auto [rows, cols, depth] = shape;
  for (std::int64_t i = 0; i < rows; ++i) {
    for (std::int64_t j = 0; j < cols; ++j) {
      double want = start, size = std::fabs(start);
      for (std::int64_t t = 0; t < depth; ++t) {
        want += double{a.wide[i * depth + t]} * b.wide[j * depth + t];
        size += std::fabs(double{a.wide[i * depth + t]} * b.wide[j * depth + t]);
      }
      ASSERT_NEAR(c[i * stride + j], want, 1e-6 * size + 1e-30) << k.isa << " " << i << " " << j;
    }
  }
}

TEST(Tiles, ProductsOfRaggedShapes) {
  for (const Kernels<float>* k : tables(true)) {
    for (const auto& shape : {std::array<std::int64_t, 3>{1, 1, 1},
                              {13, 33, 7},
                              {96, 192, 300},
                              {7, 50, 0},
                              {4, 24, 2},
                              {25, 49, 193},
                              {8, 16, 385}}) {
      const auto [rows, cols, depth] = shape;
      const Matrix a(rows, depth, 1), b(cols, depth, 2);
      const std::int64_t words = k->words_of(depth);
      for (const Dtype dtype : {Dtype::kBF16, Dtype::kF32}) {
        if (k->terms == 2 && dtype == Dtype::kF32) continue;
        std::vector<float> pa((rows + kRowPad) * words, kNaN), pb((cols + kColPad) * words, kNaN);
        k->pack_left({a.data(dtype), depth, rows, depth}, dtype, pa.data());
        k->pack_right({b.data(dtype), depth, cols, depth}, dtype, pb.data());
        const std::int64_t stride = cols + kColPad;
        std::vector<float> c((rows + kRowPad) * stride, kNaN);
        k->multiply({rows, cols, words, pa.data(), pb.data(), c.data(), stride, false});
        check_product(*k, a, b, c, shape, stride, 0.0);
        for (float& v : c) v = 2.0f;
        k->multiply({rows, cols, words, pa.data(), pb.data(), c.data(), stride, true});
        check_product(*k, a, b, c, shape, stride, 2.0);
      }
    }
  }
}

// The right operand from a matrix whose rows lie across the sum, rows scaled or not read.
TEST(Tiles, ColumnsPackAsRowsDo) {
  for (const Kernels<float>* k : tables(true)) {
    for (const auto& [depth, cols] : {std::array<std::int64_t, 2>{1, 1}, {7, 30}, {64, 192}}) {
      Matrix a(depth, cols, 3), transposed(cols, depth, 4);
      std::vector<float> scale(depth, 1.0f);
      scale[0] = 0.5f;
      for (std::int64_t t = 0; t < depth; ++t) {
        if (t % 5 == 3) scale[t] = 0.0f;
        for (std::int64_t j = 0; j < cols; ++j) {
          const float value = scale[t] == 0.0f ? 0.0f : scale[t] * a.wide[t * cols + j];
          transposed.wide[j * depth + t] = value;
          transposed.narrow[j * depth + t] = round_bf16(value);
          if (scale[t] == 0.0f) a.narrow[t * cols + j] = round_bf16(kNaN);
        }
      }
      const std::int64_t words = k->words_of(depth);
      std::vector<float> got((cols + kColPad) * words, 7.0f), want = got;
      k->pack_right_cols({a.narrow.data(), cols, depth, cols, scale.data()}, Dtype::kBF16,
                         got.data());
      k->pack_right({transposed.narrow.data(), depth, cols, depth}, Dtype::kBF16, want.data());
      EXPECT_EQ(std::memcmp(got.data(), want.data(), got.size() * sizeof(float)), 0) << k->isa;
    }
  }
}

// One row of a tile: u, exponentials and sums by the definition.
void check_row(const Kernels<float>& k, std::int64_t cols, std::int64_t target, float softcap) {
  const auto products = randoms(kTileVocab, 7, 20.0f);
  const auto bias = randoms(cols, 8), weights = randoms(cols, 9);
  std::vector<float> tile = products, kept(cols), logits(cols);
  TileRow<float> row{};
  row.tile = tile.data();
  row.cols = cols;
  row.bias = bias.data();
  row.class_weight = weights.data();
  row.map = {0.5f, softcap};
  row.inverse_temperature = 2.0f;
  row.target = target;
  row.wants_entropy = row.wants_weighted = row.wants_best = true;
  row.exponentials = kept.data();
  row.kept_dtype = Dtype::kF32;
  row.logits = logits.data();
  const TileResult<float> got = k.tile_row(row);
  double max = -1e300, others = 0, entropy = 0, weighted = 0;
  std::int64_t best = -1;
  std::vector<double> u(cols), slope(cols, 1.0);
  for (std::int64_t j = 0; j < cols; ++j) {
    const double z = 0.5 * products[j] + bias[j];
    const double t = softcap > 0 ? std::tanh(z / softcap) : 0.0;
    u[j] = (softcap > 0 ? softcap * t : z) * 2.0;
    slope[j] = 1 - t * t;
    if (u[j] > max) max = u[j], best = j;
    EXPECT_NEAR(logits[j], z, 1e-5);
  }
  for (std::int64_t j = 0; j < cols; ++j) {
    const double e = j == target ? 0.0 : std::exp(u[j] - max);
    const double offset = k.terms == 2 ? value_of(offset_of(got.stats.max)) : max;
    const double moved = e * std::exp(max - offset);
    others += e;
    entropy += e * (u[j] - max);
    weighted += weights[j] * (max - u[j]);
    EXPECT_NEAR(kept[j], moved * slope[j], 2e-5 * moved * slope[j] + 2e-7 * moved + 1e-30)
        << k.isa << " " << j;
  }
  EXPECT_NEAR(got.stats.max, max, 1e-5 * std::fabs(max));
  EXPECT_NEAR(got.stats.others, others, 2e-5 * others) << k.isa;
  EXPECT_NEAR(got.stats.entropy, entropy, 1e-4 * std::fabs(entropy) + 1e-6);
  EXPECT_NEAR(got.stats.weighted, weighted, 1e-4 * cols * 40);
  EXPECT_EQ(got.best_col, best);
  if (target >= 0) {
    EXPECT_NEAR(got.target, u[target], 1e-5 * 100);
    EXPECT_NEAR(got.target_slope, slope[target], 1e-6);
  }
}

TEST(Tiles, StatisticsOfARow) {
  for (const Kernels<float>* k : tables(true)) {
    for (const std::int64_t cols : {1, 2, 15, 16, 17, 191, 192}) {
      for (const float cap : {0.0f, 15.0f}) {
        check_row(*k, cols, -1, cap);
        check_row(*k, cols, cols - 1, cap);
        check_row(*k, cols, 0, cap);
      }
    }
  }
}

TEST(Tiles, ExponentialIsRightToAnUlpAndZeroBelowTheRange) {
  for (const Kernels<float>* k : tables()) {
    double worst = 0;
    for (int start = 0; start < 88000; start += 191) {
      std::vector<float> tile(kTileVocab), kept(kTileVocab);
      tile[0] = 0.0f;
      for (int j = 1; j < kTileVocab; ++j) tile[j] = -(start + j) * 1e-3f;
      const std::vector<float> u = tile;
      TileRow<float> row{};
      row.tile = tile.data(), row.cols = kTileVocab, row.map = {1.0f, 0.0f};
      row.inverse_temperature = 1.0f, row.target = -1;
      row.exponentials = kept.data(), row.kept_dtype = Dtype::kF32;
      k->tile_row(row);
      for (int j = 0; j < kTileVocab; ++j) {
        const double want = std::exp(double{u[j]});
        if (u[j] > -87.3f) worst = std::max(worst, std::fabs(kept[j] - want) / want);
        if (u[j] < -87.4f) {
          ASSERT_EQ(kept[j], 0.0f);
        }
      }
    }
    EXPECT_LT(worst, 1.5e-7) << k->isa;
  }
}

TEST(Tiles, SpecialValues) {
  constexpr float kInf = std::numeric_limits<float>::infinity();
  const float nan = std::numeric_limits<float>::quiet_NaN();
  for (const Kernels<float>* k : tables()) {
    const auto run = [&](std::vector<float> u) {
      const auto cols = static_cast<std::int64_t>(u.size());
      u.resize(kTileVocab);
      TileRow<float> row{};
      row.tile = u.data(), row.cols = cols, row.map = {1.0f, 0.0f};
      row.inverse_temperature = 1.0f, row.target = -1, row.wants_best = row.wants_entropy = true;
      return k->tile_row(row);
    };
    const auto all_lost = run({-kInf, -kInf, -kInf});
    EXPECT_EQ(all_lost.stats.others, 0.0f) << k->isa;
    EXPECT_EQ(all_lost.stats.entropy, 0.0f);
    EXPECT_EQ(all_lost.best_col, 0);
    EXPECT_TRUE(std::isfinite(all_lost.stats.max));
    EXPECT_EQ(run({-kInf, 3.0f, -kInf}).stats.others, 1.0f);
    EXPECT_TRUE(std::isnan(run({1.0f, nan, 2.0f}).stats.others)) << k->isa;
    EXPECT_TRUE(std::isnan(run({1.0f, kInf}).stats.others));
    EXPECT_EQ(run({nan, 1.0f, 5.0f, 5.0f}).best_col, 2) << "the first of equal ones";
    EXPECT_EQ(run({1e8f, 1e8f}).stats.others, 2.0f) << "a large common offset is exact";
  }
}

}  // namespace
}  // namespace flce::cpu
