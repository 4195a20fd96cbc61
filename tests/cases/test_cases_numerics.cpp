// SPDX-License-Identifier: Apache-2.0
// Cases of kinds K09 to K14: log-sum-exp, rounding of logits and gradients, sums over chunks, the
// range of f16, the precision of the loss.
#include <gtest/gtest.h>

#include <algorithm>

#include "cases/case_support.hpp"

namespace flce_test {
namespace {

using flce::Dtype;
using flce::Method;
using oracle::Reduction;

TEST(CasesNumerics, C037_LargeCommonOffset) {
  for_all({Dtype::kF64, Dtype::kF32}, [](Dtype dtype, Method method) {
    for (const double offset : {0.0, 1e4, 1e6, -1e6}) {
      const Case c = head_case(dtype, 1, {1}, {2 + offset, -1 + offset}, {0});
      const Results results = run_with(c, method);
      EXPECT_TRUE(all_near(results.loss, {0.0485873}, 1e-6)) << offset;
      EXPECT_TRUE(all_near(results.grad_weight, {-0.0474259, 0.0474259}, 1e-6)) << offset;
    }
  });
  for_all({Dtype::kF64, Dtype::kF32, Dtype::kBF16}, [](Dtype dtype, Method method) {
    const Case c = head_case(dtype, 1, {1}, {1e8, 1e8}, {0});
    EXPECT_TRUE(all_near(run_with(c, method).loss, {0.6931472}, 1e-6));
  });
  // In 16 bits an offset that leaves room for the difference of 3.
  for_all({Dtype::kBF16, Dtype::kF16}, [](Dtype dtype, Method method) {
    for (const double offset : {126.0, -126.0, 200.0}) {
      const Case c = head_case(dtype, 1, {1}, {2 + offset, -1 + offset}, {0});
      EXPECT_TRUE(all_near(run_with(c, method).loss, {0.0485873}, 1e-6)) << offset;
    }
  });
}

TEST(CasesNumerics, C038_TilesOfMinusInfinity) {
  constexpr std::int64_t kVocab = 100000;
  for_all({Dtype::kF32, Dtype::kBF16}, [](Dtype dtype, Method method) {
    for (const std::int64_t finite : {0, 1, 31337, 50000, 99999}) {
      Case c = flat_head(dtype, kVocab, 0.0, {finite});
      c.in.bias.assign(kVocab, -kInfinity);
      c.in.bias[finite] = 10;
      c.wants.grad_bias = c.wants.entropy = true;
      const Results results = run_with(c, method);
      EXPECT_EQ(results.loss[0], 0.0) << finite;
      EXPECT_EQ(results.entropy[0], 0.0) << finite;
      expect_zero_gradients(results);
    }
    for (const std::int64_t other : {0, 49999, 50001, 99999}) {
      Case c = flat_head(dtype, kVocab, 0.0, {50000});
      c.in.bias.assign(kVocab, -kInfinity);
      c.in.bias[50000] = c.in.bias[other] = 10;
      EXPECT_TRUE(all_near(run_with(c, method).loss, {0.6931472}, 1e-6)) << other;
    }
  });
}

TEST(CasesNumerics, C040_VeryLargeVocabularies) {
  for_all({Dtype::kF32, Dtype::kBF16, Dtype::kF16}, [](Dtype dtype, Method method) {
    for (const std::int64_t vocab : {262144, 1000003}) {
      Case c = flat_head(dtype, vocab, 0.0, {0});
      c.in.reduction = Reduction::kSum;
      if (vocab == 1000003) c.grad_weight_dtype = Dtype::kF32;  // 1 / V is no 16-bit number
      const Results results = run_with(c, method);
      const double right = vocab == 262144 ? 12.4766493 : 13.8155136;
      EXPECT_TRUE(all_near(results.loss, {right}, 1e-6)) << vocab;
      const double share = 1.0 / static_cast<double>(vocab);
      for (std::int64_t j = 1; j < vocab; ++j) {
        // On a card the products see probabilities that are rounded to the inputs' type.
        const double relative = on_cuda() ? std::max(1e-3, digits(dtype)) : 1e-3;
        ASSERT_NEAR(results.grad_weight[j], share, relative * share) << j << " of " << vocab;
      }
      expect_no_total(results.grad_weight);
    }
  });
}

TEST(CasesNumerics, C041_ForwardAndBackwardSeeTheSameLogits) {
  for_all([](Dtype dtype, Method method) {
    for (const double largest : {5.0, 20.0, 80.0, 320.0}) {
      for (std::uint64_t token = 0; token < 4; ++token) {
        Case c = basic_case({1, 64, 512}, dtype, 300 + token);
        double top = 0.0;
        for (std::int64_t j = 0; j < 512; ++j) {
          double z = 0.0;
          for (std::int64_t k = 0; k < 64; ++k) z += c.in.x[k] * c.in.w[j * 64 + k];
          top = std::max(top, z);
        }
        for (double& w : c.in.w) w = round_to(dtype, w * largest / top);
        c.in.bias.assign(512, 0.0);
        c.in.reduction = Reduction::kSum;
        c.wants.grad_bias = true;
        const Results results = run_with(c, method);
        expect_no_total(results.grad_bias);
        for (std::int64_t k = 0; k < 64; ++k) {
          Values column(512);
          for (std::int64_t j = 0; j < 512; ++j) column[j] = results.grad_weight[j * 64 + k];
          expect_no_total(column);
        }
      }
    }
  });
}

TEST(CasesNumerics, C043_TargetGradientOfAConfidentToken) {
  for_all([](Dtype dtype, Method method) {
    Case c = identity_head(dtype, 4, {8, 0, 0, 0}, {0});
    c.in.reduction = Reduction::kSum;
    const Results results = run_with(c, method);
    EXPECT_NEAR(results.grad_hidden[0], -0.00100538, 0.01 * 0.00100538);
    for (int j = 1; j < 4; ++j) EXPECT_NEAR(results.grad_hidden[j], 0.00033513, 0.01 * 0.00033513);
  });
}

TEST(CasesNumerics, C045_SumsOverChunksAreWide) {
  // By themselves small chunks and large ones take different routes of a card; test_hopper.cpp has
  // chunks of the other one.
  const RouteScope route(flce::Route::kPortable);
  for_all([](Dtype dtype, Method method) {
    for (const std::int64_t chunk : {1, 16, 256, 4096}) {
      Case c = head_case(dtype, 1, Values(4096, 1.0), {0, 0}, Integers(4096, 0));
      c.in.reduction = Reduction::kSum;
      EXPECT_EQ(run_with(c, method, chunk).grad_weight, (Values{-2048, 2048})) << chunk;
    }
    const Case c = basic_case({256, 64, 1000}, dtype, 13);
    const oracle::Result want = oracle::evaluate(c.in);
    const double whole = relative_error(run_with(c, method, 256).grad_weight, want.grad_weight);
    for (const std::int64_t chunk : {16, 64}) {
      const Results results = run_with(c, method, chunk);
      EXPECT_LE(relative_error(results.grad_weight, want.grad_weight), 1.1 * whole + 1e-7) << chunk;
    }
  });
}

TEST(CasesNumerics, C046_SmallProbabilitiesAreNotDropped) {
  for_all([](Dtype dtype, Method method) {
    Case c = flat_head(dtype, 65536, 0.0, {0});
    c.in.reduction = Reduction::kSum;
    const Results results = run_with(c, method);
    for (std::int64_t j = 1; j < 65536; ++j) ASSERT_NEAR(results.grad_weight[j], 0x1p-16, 1e-11);
  });
}

TEST(CasesNumerics, C048_HalfPrecisionSumsDoNotOverflow) {
  constexpr std::int64_t kTokens = 20480;
  const auto run = [](std::int64_t vocab, Reduction reduction, Method method) {
    Case c = flat_head(Dtype::kF16, vocab, 0.0, Integers(kTokens, 0));
    for (std::int64_t i = 0; i < kTokens; ++i) c.in.target[i] = i % vocab;
    c.in.reduction = reduction;
    c.wants = {.grad_hidden = false, .grad_weight = false};
    return run_with(c, method).loss;
  };
  for (const Method method : {Method::kFused, Method::kRecompute}) {
    SCOPED_TRACE(flce::name_of(method));
    EXPECT_TRUE(all_near(run(14749, Reduction::kMean, method), {9.5989306}, 1e-6));
    EXPECT_TRUE(all_near(run(14749, Reduction::kSum, method), {196586.10}, 1e-6));
  }
  for (const Method method : kMethods) {  // the same overflow with a table of logits that fits
    SCOPED_TRACE(flce::name_of(method));
    const double right = std::log(301.0);
    EXPECT_TRUE(all_near(run(301, Reduction::kSum, method), {kTokens * right}, 1e-6));
    EXPECT_TRUE(all_near(run(301, Reduction::kMean, method), {right}, 1e-6));
    EXPECT_TRUE(all_near(run(301, Reduction::kNone, method), Values(kTokens, right), 1e-6));
  }
}

TEST(CasesNumerics, C049_HalfPrecisionDenominators) {
  for_all([](Dtype dtype, Method method) {
    EXPECT_TRUE(
        all_near(run_with(flat_head(dtype, 4096, 0.0, {1}), method).loss, {8.3177662}, 1e-6));
    EXPECT_TRUE(
        all_near(run_with(flat_head(dtype, 70000, 0.0, {1}), method).loss, {11.1562505}, 1e-6));
  });
}

TEST(CasesNumerics, C050_LogitsBeyondTheHalfRange) {
  for_all([](Dtype dtype, Method method) {
    const Case c = head_case(dtype, 1024, Values(1024, 16.0), Values(1024 * 1000, 16.0), {7});
    const Results results = run_with(c, method);
    EXPECT_TRUE(all_near(results.loss, {6.9077553}, 1e-6));
    for (const double value : results.grad_weight) ASSERT_TRUE(std::isfinite(value));
  });
}

TEST(CasesNumerics, C051_UpstreamOfZeroAndBelow) {
  for_all([](Dtype dtype, Method method) {
    for (const flce::Pass pass : {flce::Pass::kRun, flce::Pass::kForwardBackward}) {
      Case c = basic_case({9, 8, 30}, dtype, 14);
      c.in.bias.assign(30, 0.5);
      c.wants.grad_bias = true;
      const RunConfig config{method, 4, 1, pass};
      const Results base = run_case(c, config).results;
      c.in.grad_output = {0.0};
      expect_zero_gradients(run_case(c, config).results);
      c.in.grad_output = {-2.5};
      const Results scaled = run_case(c, config).results;
      const auto times = [](Values values) {
        for (double& value : values) value *= -2.5;
        return values;
      };
      EXPECT_LE(relative_error(scaled.grad_hidden, times(base.grad_hidden)), digits(dtype));
      EXPECT_LE(relative_error(scaled.grad_weight, times(base.grad_weight)), digits(dtype));
      EXPECT_LE(relative_error(scaled.grad_bias, times(base.grad_bias)), digits(dtype));
      EXPECT_EQ(scaled.loss, base.loss);
    }
  });
}

TEST(CasesNumerics, C053_TheLossIsWide) {
  for_all([](Dtype dtype, Method method) {
    EXPECT_TRUE(
        all_near(run_with(flat_head(dtype, 50257, 0.0, {5}), method).loss, {10.8249051}, 1e-6));
    EXPECT_TRUE(
        all_near(run_with(flat_head(dtype, 70000, 0.0, {5}), method).loss, {11.1562505}, 1e-6));
  });
}

}  // namespace
}  // namespace flce_test
