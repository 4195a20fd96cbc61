// SPDX-License-Identifier: Apache-2.0
// Cases of kinds K06 to K08: smoothing and class weights, targets, padding.
#include <gtest/gtest.h>

#include <algorithm>

#include "cases/case_support.hpp"

namespace flce_test {
namespace {

using flce::Dtype;
using flce::Method;
using oracle::Reduction;

TEST(Cases, C022_SmoothingLeavesIgnoredTokensOut) {
  for_all([](Dtype dtype, Method method) {
    Case c = identity_head(dtype, 4, {0, 0, 0, 0, 1, 2, 3, 4}, {-100, 3});
    c.in.smoothing = 0.1;
    const Results results = run_with(c, method);
    EXPECT_TRUE(all_near(results.loss, {0.5901897}, 1e-6));
    const Values row(results.grad_hidden.begin() + 4, results.grad_hidden.end());
    EXPECT_TRUE(all_zero(Values(results.grad_hidden.begin(), results.grad_hidden.begin() + 4)));
    EXPECT_TRUE(all_near(row, {0.0070586, 0.0621443, 0.2118828, -0.2810857}, digits(dtype)));
    c.in.target = {0, 3};
    EXPECT_TRUE(all_near(run_with(c, method).loss, {0.9882420}, 1e-6));
  });
}

TEST(Cases, C024_AllPartsDivideByTheWeights) {
  for_all([](Dtype dtype, Method method) {
    Case c = identity_head(dtype, 4, {0, 0, 0, 0, 1, 2, 3, 4}, {0, 3});
    c.in.class_weight = {1, 2, 3, 4};
    EXPECT_TRUE(all_near(run_with(c, method).loss, {0.6294106}, 1e-6));
    c.in.z_loss = 0.01;
    c.wants.z_loss = true;
    const double first = std::log(4.0);
    const double second = 4.4401897;  // logsumexp of 1, 2, 3, 4
    const double z_part = 0.01 * (first * first + second * second) / 5;
    const Results results = run_with(c, method);
    EXPECT_TRUE(all_near(results.z_loss, {z_part}, 1e-6));
    EXPECT_TRUE(all_near(results.loss, {0.6294106 + z_part}, 1e-6));
  });
}

TEST(Cases, C026_ImpossibleClassWithAndWithoutSmoothing) {
  for_all([](Dtype dtype, Method method) {
    Case c = head_case(dtype, 1, {1}, {0, 0, 0}, {1});
    c.in.bias = {-kInfinity, 0, 0};
    c.wants.grad_bias = true;
    Results results = run_with(c, method);
    EXPECT_TRUE(all_near(results.loss, {0.6931472}, 1e-6));
    EXPECT_TRUE(all_near(results.grad_bias, {0, -0.5, 0.5}, digits(dtype)));
    EXPECT_EQ(results.grad_weight, results.grad_bias);
    c.in.smoothing = 0.1;
    results = run_with(c, method);
    EXPECT_EQ(results.loss[0], kInfinity);
    const Values smoothed = {-0.0333333, -0.4333333, 0.4666667};
    EXPECT_TRUE(all_near(results.grad_bias, smoothed, digits(dtype)));
    EXPECT_TRUE(all_near(results.grad_weight, smoothed, digits(dtype)));
  });
}

TEST(Cases, C027_TargetsOutsideTheVocabulary) {
  const auto two_to = [](int exponent) { return std::int64_t{1} << exponent; };
  for_all([&](Dtype dtype, Method method) {
    for (const std::int64_t wrong :
         {std::int64_t{5}, std::int64_t{100}, std::int64_t{-1}, std::int64_t{-2}, two_to(31),
          -two_to(40), two_to(32) + 1, -two_to(32) + 1}) {
      Case c = basic_case({4, 3, 5}, dtype, 9);
      c.in.target[2] = wrong;
      try {
        run_with(c, method);
        ADD_FAILURE() << "accepted " << wrong;
      } catch (const flce::Error& error) {
        EXPECT_EQ(error.code(), flce::ErrorCode::kTargetOutOfRange);
        EXPECT_NE(std::string(error.what()).find(std::to_string(wrong)), std::string::npos)
            << error.what();
      }
    }
  });
}

TEST(Cases, C028_IgnoreIndexOutsideTheVocabulary) {
  for_all([](Dtype dtype, Method method) {
    for (const std::int64_t index :
         {std::int64_t{255}, std::int64_t{-1}, -(std::int64_t{1} << 31)}) {
      for (const Reduction reduction : kReductions) {
        Case c = basic_case({6, 4, 3}, dtype, 10);
        c.in.target = {0, 1, index, 0, 1, 2};
        c.in.ignore_index = index;
        c.in.reduction = reduction;
        c.wants.num_valid = true;
        const RunConfig config{method, 4};
        const Results results = run_case(c, config).results;
        expect_matches(c, oracle::evaluate(c.in), results, describe(c, config));
        EXPECT_EQ(results.num_valid[0], 5);
        c.target_dtype = Dtype::kI32;
        EXPECT_EQ(first_difference(run_case(c, config).results, results), "");
      }
    }
  });
}

TEST(Cases, C030_TargetTypes) {
  for_all([](Dtype dtype, Method method) {
    Case c = basic_case({40, 4, 300}, dtype, 11);
    const Results wide = run_with(c, method);
    c.target_dtype = Dtype::kI32;
    EXPECT_EQ(first_difference(run_with(c, method), wide), "");
  });
  const Case c = basic_case({4, 4, 300}, Dtype::kF32, 11);
  const Memory memory(c);
  for (const Dtype wrong : {Dtype::kF64, Dtype::kF32, Dtype::kBF16, Dtype::kF16, Dtype::kNone}) {
    flce::Inputs inputs = memory.inputs();
    inputs.target.dtype = wrong;
    EXPECT_THROW(flce::problem_of(inputs, memory.outputs(), {}), flce::Error);
  }
}

TEST(Cases, C033_VocabularyIsNoMultipleOfATile) {
  for_all([](Dtype dtype, Method method) {
    for (const std::int64_t vocab : {5, 127, 129, 129920, 151936, 256001}) {
      for (const double logit : {-20.0, 20.0}) {
        Case c = flat_head(dtype, vocab, logit, {2});
        c.wants.entropy = c.wants.lse = true;
        if (dtype == Dtype::kF16) c.grad_weight_dtype = Dtype::kF32;  // 1 / V is tiny in f16
        const Results results = run_with(c, method);
        const double right = std::log(static_cast<double>(vocab));
        EXPECT_TRUE(all_near(results.loss, {right}, 1e-6)) << vocab;
        EXPECT_TRUE(all_near(results.entropy, {right}, 1e-5)) << vocab;
        EXPECT_TRUE(all_near(results.lse, {right + logit}, 1e-6)) << vocab;
        expect_no_total(results.grad_weight);
      }
    }
  });
}

TEST(Cases, C036_MemoryBehindTheInputsIsNeverRead) {
  for_all([](Dtype dtype, Method method) {
    for (const std::int64_t tokens : {1, 31, 33, 91, 1017}) {
      // Storage ends with the last element; behind it stand NaN and targets out of range.
      const Case c = basic_case({tokens, 8, 20}, dtype, 12);
      const Results clean = run_with(c, method);
      for (int run = 0; run < (tokens < 1000 ? 20 : 3); ++run) {
        ASSERT_EQ(first_difference(run_with(c, method), clean), "") << tokens;
      }
    }
  });
}

}  // namespace
}  // namespace flce_test
