// SPDX-License-Identifier: Apache-2.0
// The tile kernels of every instruction set that this processor has, against plain loops in double.
#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <random>
#include <vector>

#include "cpu/kernels.hpp"
#include "math/round.hpp"

namespace flce::cpu {
namespace {

template <typename Acc>
std::vector<const Kernels<Acc>*> tables() {
  std::vector<const Kernels<Acc>*> all{&portable_kernels<Acc>()};
#if defined(__x86_64__)
  if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma")) {
    all.push_back(&avx2_kernels<Acc>());
  }
  if (__builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
      __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl")) {
    all.push_back(&avx512_kernels<Acc>());
  }
#endif
  return all;
}

std::vector<float> randoms(std::size_t count, unsigned seed, float scale = 1.0f) {
  std::mt19937 engine(seed);
  std::normal_distribution<float> normal(0.0f, scale);
  std::vector<float> values(count);
  for (float& v : values) v = normal(engine);
  return values;
}

TEST(Tiles, ProductsOfRaggedShapes) {
  for (const Kernels<float>* k : tables<float>()) {
    for (const auto [rows, cols, depth] : {std::array{1, 1, 1}, std::array{13, 33, 7},
                                           std::array{96, 192, 300}, std::array{7, 50, 0}}) {
      const auto a = randoms(rows * depth + 1, 1), b = randoms(cols * depth + 1, 2);
      std::vector<float> pa((rows + kRowPad) * depth + 64), pb((cols + kColPad) * depth + 64);
      k->pack_rows({a.data(), depth, rows, depth}, Dtype::kF32, k->left_width, pa.data());
      k->pack_rows({b.data(), depth, cols, depth}, Dtype::kF32, k->right_width, pb.data());
      const std::int64_t m = (rows + k->left_width - 1) / k->left_width * k->left_width;
      const std::int64_t n = (cols + k->right_width - 1) / k->right_width * k->right_width;
      std::vector<float> c(m * n, std::numeric_limits<float>::quiet_NaN());
      k->multiply({m, n, depth, pa.data(), pb.data(), c.data(), n, false});
      for (int i = 0; i < rows; ++i) {
        for (int j = 0; j < cols; ++j) {
          double want = 0, size = 0;
          for (int t = 0; t < depth; ++t) {
            want += double{a[i * depth + t]} * b[j * depth + t];
            size += std::fabs(double{a[i * depth + t]} * b[j * depth + t]);
          }
          ASSERT_NEAR(c[i * n + j], want, 1e-6 * size + 1e-30) << k->isa << " " << i << " " << j;
        }
      }
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
    others += e;
    entropy += e * (u[j] - max);
    weighted += weights[j] * (max - u[j]);
    EXPECT_NEAR(kept[j], e * slope[j], 2e-5 * e * slope[j] + 2e-7 * e + 1e-30) << k.isa << " " << j;
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
  for (const Kernels<float>* k : tables<float>()) {
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
  for (const Kernels<float>* k : tables<float>()) {
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
  for (const Kernels<float>* k : tables<float>()) {
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

TEST(Tiles, SkippedRowsAreNeverRead) {
  const float nan = std::numeric_limits<float>::quiet_NaN();
  const std::vector<float> source{1, 2, nan, nan, 5, 6};
  const std::vector<std::uint8_t> skip{0, 1, 0};
  for (const Kernels<float>* k : tables<float>()) {
    std::vector<float> packed(3 * kColPad, nan);
    k->pack_cols({source.data(), 2, 3, 2, skip.data()}, Dtype::kF32, packed.data());
    for (std::int64_t i = 0; i < 3 * k->right_width; ++i) ASSERT_FALSE(std::isnan(packed[i]));
    EXPECT_EQ(packed[0], 1.0f);
    EXPECT_EQ(packed[k->right_width], 0.0f);
    EXPECT_EQ(packed[2 * k->right_width + 1], 6.0f);
  }
}

// The sums of the peak probe go from 2..3 to 1, each of them: none was left out.
template <typename Acc>
void expect_every_sum() {
  for (const Kernels<Acc>* k : tables<Acc>()) {
    const auto sums = static_cast<double>(k->flops_per_round) / 2;
    EXPECT_GE(sums, 12.0) << k->isa;
    EXPECT_NEAR(k->fma_burst(100), sums, 1e-3) << k->isa;
    EXPECT_NEAR(k->fma_burst(0), sums * (2.0 + 11.0 / 24.0), 1e-3) << k->isa;
  }
}
TEST(Tiles, ThePeakProbeComputesWhatItCounts) {
  expect_every_sum<float>();
  expect_every_sum<double>();
}

}  // namespace
}  // namespace flce::cpu
