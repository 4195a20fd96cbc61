// SPDX-License-Identifier: Apache-2.0
// Cases of kinds K22, K23 and K31: soft cap, scale, bias, temperature, z-loss, and options that are
// dropped on the way.
#include <gtest/gtest.h>

#include <algorithm>
#include <functional>

#include "cases/case_support.hpp"

namespace flce_test {
namespace {

using flce::Dtype;
using flce::Method;
using oracle::Reduction;

TEST(Cases, C075_SoftCap) {
  for_all([](Dtype dtype, Method method) {
    Case c = identity_head(dtype, 2, {60, 0}, {1});
    c.in.softcap = 30;
    Results results = run_with(c, method);
    EXPECT_TRUE(all_near(results.loss, {28.9208274}, 2e-6));
    EXPECT_TRUE(all_near(results.grad_hidden, {0.0706508, -1.0}, std::max(digits(dtype), 4e-6)));
    c.in.softcap = 0;
    EXPECT_TRUE(all_near(run_with(c, method).loss, {60.0}, 1e-6));
  });
}

TEST(Cases, C075_SoftCapAgainstDifferences) {
  for_all({Dtype::kF64}, [](Dtype dtype, Method method) {
    Case c = basic_case({5, 6, 11}, dtype, 27, Data::kPeaked);
    c.in.softcap = 5;
    const Results results = run_with(c, method, 2);
    for (const std::int64_t at : {0, 7, 14, 29}) {
      Case moved = c;
      moved.in.x[at] += 1e-5;
      const double above = run_with(moved, method).loss[0];
      moved.in.x[at] -= 2e-5;
      const double below = run_with(moved, method).loss[0];
      EXPECT_NEAR(results.grad_hidden[at], (above - below) / 2e-5, 1e-8) << at;
    }
  });
}

TEST(Cases, C076_LogitScaleComesBeforeTheCap) {
  for_all([](Dtype dtype, Method method) {
    Case c = identity_head(dtype, 2, {8, 0}, {0});
    c.in.scale = 0.125;
    Results results = run_with(c, method);
    EXPECT_TRUE(all_near(results.loss, {0.3132617}, 1e-6));
    EXPECT_TRUE(all_near(results.grad_hidden, {-0.0336177, 0.0336177}, digits(dtype)));
    // Two tanh(0.5), and not one tanh(4) times an eighth.
    c.in.softcap = 2;
    results = run_with(c, method);
    EXPECT_TRUE(all_near(results.loss, {std::log1p(std::exp(-2 * std::tanh(0.5)))}, 3e-6));
  });
}

TEST(Cases, C077_Bias) {
  for_all([](Dtype dtype, Method method) {
    if (dtype == Dtype::kBF16 || dtype == Dtype::kF16) return;  // ln 3 is rounded there
    Case c = flat_head(dtype, 4, 0.0, {3});
    for (int j = 0; j < 4; ++j) c.in.bias.push_back(round_to(dtype, std::log(1.0 + j)));
    c.wants.grad_bias = true;
    const Results results = run_with(c, method);
    EXPECT_TRUE(all_near(results.loss, {0.9162907}, 1e-6));
    EXPECT_TRUE(all_near(results.grad_bias, {0.1, 0.2, 0.3, -0.6}, digits(dtype)));
    EXPECT_EQ(results.grad_weight, results.grad_bias);
  });
  for_all({Dtype::kBF16, Dtype::kF16}, [](Dtype dtype, Method method) {
    Case c = flat_head(dtype, 4, 0.0, {3});
    c.vector_dtype = Dtype::kF32;
    for (int j = 0; j < 4; ++j) c.in.bias.push_back(round_to(Dtype::kF32, std::log(1.0 + j)));
    c.wants.grad_bias = true;
    const Results results = run_with(c, method);
    EXPECT_TRUE(all_near(results.loss, {0.9162907}, 1e-6));
    // On a card it is the sum of the gradients that the products see, which are rounded.
    EXPECT_TRUE(
        all_near(results.grad_bias, {0.1, 0.2, 0.3, -0.6}, on_cuda() ? digits(dtype) : 1e-6));
    EXPECT_TRUE(all_near(results.grad_weight, {0.1, 0.2, 0.3, -0.6}, digits(dtype)));
  });
}

TEST(Cases, C077_LossWithBiasIsNeverNegative) {
  for_all([](Dtype dtype, Method method) {
    for (std::uint64_t seed = 0; seed < 8; ++seed) {
      Case c = basic_case({10, 5, 23}, dtype, 400 + seed, Data::kPeaked);
      Rng rng(seed);
      c.in.bias = random_normals(dtype, 23, 4.0, rng);
      c.in.reduction = Reduction::kNone;
      c.layout.bias_stride = 2;
      c.wants.grad_bias = seed % 2 == 0;
      for (const double loss : run_with(c, method, 4).loss) EXPECT_GE(loss, 0.0);
    }
  });
}

TEST(Cases, C078_TemperaturePerToken) {
  for_all([](Dtype dtype, Method method) {
    Case c = identity_head(dtype, 2, {1, 0, 1, 0}, {0, 0});
    c.in.temperature_per_token = {0.5, 2};
    c.in.reduction = Reduction::kNone;
    const Results results = run_with(c, method);
    EXPECT_TRUE(all_near(results.loss, {0.1269280, 0.4740770}, 1e-6));
    EXPECT_TRUE(all_near(results.grad_hidden, {-0.2384058, 0.2384058, -0.1887703, 0.1887703},
                         digits(dtype)));
    c.in.temperature_per_token.clear();
    c.in.temperature = 0.5;
    EXPECT_TRUE(all_near(run_with(c, method).loss, {0.1269280, 0.1269280}, 1e-6));
  });
}

TEST(Cases, C079_ZLoss) {
  for_all([](Dtype dtype, Method method) {
    Case c = identity_head(dtype, 4, {0, 0, 0, 0}, {0});
    const Results plain = run_with(c, method);
    EXPECT_TRUE(all_near(plain.loss, {1.3862944}, 1e-7));
    c.wants.z_loss = true;
    const Results off = run_with(c, method);
    EXPECT_EQ(off.z_loss, Values{0.0});
    EXPECT_EQ(off.loss, plain.loss);
    c.in.z_loss = 1e-4;
    const Results on = run_with(c, method);
    EXPECT_TRUE(all_near(on.loss, {1.3864865}, 1e-6));
    EXPECT_TRUE(all_near({on.loss[0] - on.z_loss[0]}, plain.loss, 1e-6));
    EXPECT_TRUE(
        all_near(on.grad_hidden, {-0.7499307, 0.2500693, 0.2500693, 0.2500693}, digits(dtype)));
    c.wants.z_loss = false;
    EXPECT_EQ(run_with(c, method).loss, on.loss);
  });
}

// Every option with a value other than its default, on a case on which each one matters.
struct Change {
  const char* name;
  std::function<void(Case&)> apply;
};

const std::vector<Change>& changes() {
  static const std::vector<Change> all = {
      {"reduction", [](Case& c) { c.in.reduction = Reduction::kSum; }},
      {"ignore_index", [](Case& c) { c.in.ignore_index = c.in.target[0]; }},
      {"label_smoothing", [](Case& c) { c.in.smoothing = 0.2; }},
      {"z_loss", [](Case& c) { c.in.z_loss = 0.05; }},
      {"softcap", [](Case& c) { c.in.softcap = 1.5; }},
      {"scale", [](Case& c) { c.in.scale = 0.5; }},
      {"temperature", [](Case& c) { c.in.temperature = 2.0; }},
      {"normalizer",
       [](Case& c) {
         c.in.reduction = Reduction::kSum;
         c.in.has_normalizer = true;
         c.in.normalizer = 5;
       }},
      {"shift", [](Case& c) { c.in.shift = 1; }},
      {"sequence_length",
       [](Case& c) {
         c.in.shift = 1;
         c.in.sequence_length = 4;
       }},
      {"bias", [](Case& c) { c.in.bias = {1, 0, -1, 2, 0, 1, 0, -2, 1, 0}; }},
      {"class_weight", [](Case& c) { c.in.class_weight = {1, 2, 1, 3, 1, 2, 1, 4, 1, 2}; }},
      {"token_weight", [](Case& c) { c.in.token_weight = {1, 2, 0.5, 1, 3, 1, 0.25, 1}; }},
      {"temperature per token",
       [](Case& c) { c.in.temperature_per_token = {1, 2, 0.5, 1, 3, 1, 0.25, 1}; }},
      {"upstream", [](Case& c) { c.in.grad_output = {-3.0}; }},
  };
  return all;
}

TEST(Cases, C105_NoOptionIsDropped) {
  for_all([](Dtype dtype, Method method) {
    const Case c = basic_case({8, 6, 10}, dtype, 28);
    const RunConfig config{method, 3};
    const Results plain = run_case(c, config).results;
    for (const Change& change : changes()) {
      SCOPED_TRACE(change.name);
      Case other = c;
      change.apply(other);
      const Results results = run_case(other, config).results;
      EXPECT_NE(results.grad_hidden, plain.grad_hidden);
      expect_matches(other, oracle::evaluate(other.in), results, describe(other, config));
    }
  });
}

}  // namespace
}  // namespace flce_test
