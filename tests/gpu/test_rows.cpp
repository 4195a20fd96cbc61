// SPDX-License-Identifier: Apache-2.0
// The width of a row decides how it is worked on: one block, a cluster of blocks that share it in
// their shared memory, or passes over memory. Widths on both sides of every such border, for cards
// of 48 to 227 KiB of shared memory a block; each against the oracle.
#include <gtest/gtest.h>

#include <tuple>

#include "cases/case_support.hpp"

namespace flce_test {
namespace {

using flce::Dtype;
using flce::Method;

// A slice of a row is 70 KiB, or all the shared memory where sixteen slices must do; logits are f32
// (f64 for f64).
const std::vector<std::int64_t>& widths() {
  static const std::vector<std::int64_t> all = {6140,   17919,  17920,  17921,  24700, 35840,
                                                35841,  41000,  57000,  71680,  71681, 128256,
                                                143361, 228001, 286720, 286721, 470003};
  return all;
}

class GpuRows : public testing::TestWithParam<std::tuple<Method, Dtype>> {
 protected:
  static Case wide_case(std::int64_t vocab) {
    Case c = basic_case({5, 3, vocab}, std::get<1>(GetParam()), 95);
    c.in.reduction = oracle::Reduction::kSum;
    c.in.target[0] = 0;
    c.in.target[1] = vocab - 1;
    c.in.target[2] = c.in.ignore_index;
    if (c.dtype == Dtype::kF16) c.grad_weight_dtype = Dtype::kF32;  // 1 / V is tiny in f16
    return c;
  }
};

// Case 98: whatever the shape of the launch is, the probabilities sum to 1.
TEST_P(GpuRows, C098_EveryWidth) {
  for (const std::int64_t vocab : widths()) {
    // The borders of f64 lie at half the width; beyond, its sums are longer than their bounds are
    // made for.
    if (std::get<1>(GetParam()) == Dtype::kF64 && vocab > 250000) continue;
    const Case c = wide_case(vocab);
    const RunConfig config{std::get<0>(GetParam())};
    const oracle::Result want = oracle::evaluate(c.in);
    const Results got = run_case(c, config).results;
    expect_matches(c, want, got, describe(c, config));
    for (std::int64_t k = 0; k < c.in.hidden; ++k) {
      Values column;
      for (std::int64_t j = 0; j < vocab; ++j) column.push_back(got.grad_weight[j * 3 + k]);
      expect_no_total(column);
    }
    if (HasFailure()) return;
  }
}

// More rows than there are clusters, so that each takes several in turn; rows without a target
// among them, alone and behind each other, and at both ends.
TEST_P(GpuRows, RowsInTurn) {
  for (const std::int64_t vocab : {700, 18433, 73729}) {
    Case c = basic_case({vocab < 50000 ? 900 : 200, 3, vocab}, std::get<1>(GetParam()), 97);
    Rng rng(98);
    for (std::int64_t i = 0; i < c.in.tokens; ++i) {
      if (i < 3 || i + 2 > c.in.tokens || rng.chance(0.3)) c.in.target[i] = c.in.ignore_index;
    }
    if (c.dtype == Dtype::kF16) c.grad_weight_dtype = Dtype::kF32;
    const RunConfig config{std::get<0>(GetParam())};
    check_case(c, oracle::evaluate(c.in), config);
    if (HasFailure()) return;
  }
}

// The same with everything that a row can have.
TEST_P(GpuRows, EveryWidthWithEveryOption) {
  for (const std::int64_t vocab : {9217, 17921, 36865, 73729, 128256, 470003}) {
    Case c = wide_case(vocab);
    Rng rng(96);
    c.in.bias = random_normals(c.dtype, vocab, 1.0, rng);
    c.in.class_weight = random_weights(c, vocab, rng);
    c.in.smoothing = 0.1;
    c.in.z_loss = 1e-3;
    c.in.softcap = 20.0;
    c.in.temperature = 0.7;
    c.in.topk = 3;
    c.wants = {.grad_bias = true,
               .lse = true,
               .logprob = true,
               .entropy = true,
               .argmax = true,
               .num_correct = true,
               .topk = 3};
    if (c.dtype == Dtype::kF16) c.grad_bias_dtype = Dtype::kF32;
    const RunConfig config{std::get<0>(GetParam())};
    ASSERT_NO_THROW(check_case(c, oracle::evaluate(c.in), config)) << describe(c, config);
    if (HasFailure()) return;
  }
}

INSTANTIATE_TEST_SUITE_P(Gpu, GpuRows,
                         testing::Combine(testing::Values(Method::kFused, Method::kNaive),
                                          testing::ValuesIn(kDtypes)),
                         [](const auto& param) {
                           return std::string(flce::name_of(std::get<0>(param.param))) + "_" +
                                  flce::name_of(std::get<1>(param.param));
                         });

}  // namespace
}  // namespace flce_test
