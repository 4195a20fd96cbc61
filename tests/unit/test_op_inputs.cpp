// SPDX-License-Identifier: Apache-2.0
// How inputs lie in memory: target types, row strides, expanded rows, offsets, vectors of any
// stride. The result is that of the same values packed, bit for bit on the CPU.
#include <gtest/gtest.h>

#include <algorithm>

#include "support/compare.hpp"
#include "support/params.hpp"
#include "support/storage.hpp"

namespace flce_test {
namespace {

using flce::Dtype;

class InputsTest : public testing::TestWithParam<MethodAndDtype> {
 protected:
  RunConfig config() const { return {GetParam().method, 8}; }
  // The case laid out anew gives the bits of the packed one.
  void expect_same_as_packed(const Case& c) {
    Case packed = c;
    packed.layout = {};
    const Results want = run_case(packed, config()).results;
    const Results got = run_case(c, config()).results;
    EXPECT_EQ(difference_of_calls(got, want, c.dtype), "") << describe(c, config());
    expect_matches(c, oracle::evaluate(c.in), got, describe(c, config()));
  }
};

Case full_case(Dtype dtype) {
  Case c = basic_case({21, 19, 77}, dtype, 17);
  Rng rng(23);
  c.in.bias = random_normals(dtype, 77, 1.0, rng);
  c.in.class_weight = random_weights(c, 77, rng);
  c.in.token_weight = random_weights(c, 21, rng);
  c.in.temperature_per_token = random_weights(c, 21, rng);
  c.in.reduction = oracle::Reduction::kNone;
  c.in.grad_output = random_normals(dtype, 21, 1.0, rng);
  c.wants = {.grad_bias = true, .lse = true, .entropy = true, .argmax = true, .topk = 4};
  c.in.topk = 4;
  ignore_some(c, 0.2, rng);
  return c;
}

TEST_P(InputsTest, TargetsOfBothTypesAndAnyStride) {
  Case c = full_case(GetParam().dtype);
  const Results wide = run_case(c, config()).results;
  c.target_dtype = Dtype::kI32;
  EXPECT_EQ(first_difference(run_case(c, config()).results, wide), "");
  c.layout.target_stride = 3;
  expect_same_as_packed(c);
}

TEST_P(InputsTest, ExpandedTarget) {
  Case c = full_case(GetParam().dtype);
  std::fill(c.in.target.begin(), c.in.target.end(), 5);
  c.layout.target_stride = 0;
  expect_same_as_packed(c);
}

TEST_P(InputsTest, GapsBetweenRowsAndOddOffsets) {
  for (const std::int64_t gap : {1, 5, 13}) {
    Case c = full_case(GetParam().dtype);
    c.layout.hidden_gap = gap;
    c.layout.weight_gap = gap + 2;
    c.layout.grad_gap = gap + 1;
    c.layout.output_gap = 2;
    c.layout.offset = gap;
    expect_same_as_packed(c);
  }
}

TEST_P(InputsTest, RowsInReverse) {
  Case c = full_case(GetParam().dtype);
  c.layout.reversed_rows = true;
  c.layout.hidden_gap = 2;
  expect_same_as_packed(c);
}

TEST_P(InputsTest, ExpandedRows) {
  Case c = full_case(GetParam().dtype);
  for (std::int64_t i = 1; i < c.in.tokens; ++i) {
    std::copy_n(c.in.x.begin(), c.in.hidden, c.in.x.begin() + i * c.in.hidden);
  }
  c.layout.hidden_gap = -c.in.hidden;  // a row stride of 0
  expect_same_as_packed(c);
}

TEST_P(InputsTest, VectorsOfStrideTwo) {
  Case c = full_case(GetParam().dtype);
  c.layout.bias_stride = 2;
  c.layout.class_weight_stride = 2;
  c.layout.token_weight_stride = 2;
  c.layout.upstream_stride = 2;
  expect_same_as_packed(c);
}

TEST_P(InputsTest, VectorsOfStrideZero) {
  Case c = full_case(GetParam().dtype);
  for (auto* vector : {&c.in.bias, &c.in.class_weight, &c.in.token_weight,
                       &c.in.temperature_per_token, &c.in.grad_output}) {
    std::fill(vector->begin(), vector->end(), 0.75);
  }
  c.layout.bias_stride = 0;
  c.layout.class_weight_stride = 0;
  c.layout.token_weight_stride = 0;
  c.layout.upstream_stride = 0;
  expect_same_as_packed(c);
}

TEST_P(InputsTest, VectorsInF32BesideNarrowOperands) {
  if (GetParam().dtype == Dtype::kF64) GTEST_SKIP() << "f64 problems take f64 vectors";
  Case c = full_case(GetParam().dtype);
  c.vector_dtype = Dtype::kF32;
  Rng rng(31);
  c.in.bias = random_normals(Dtype::kF32, 77, 1.0, rng);  // not representable in 16 bits
  c.in.class_weight = random_weights(c, 77, rng);
  const Results got = run_case(c, config()).results;
  expect_matches(c, oracle::evaluate(c.in), got, describe(c, config()));
}

TEST_P(InputsTest, NormalizerOfEveryType) {
  Case c = full_case(GetParam().dtype);
  c.in.reduction = oracle::Reduction::kSum;
  c.in.grad_output.clear();
  c.in.has_normalizer = true;
  c.in.normalizer = 12;
  const Results host = run_case(c, config()).results;
  for (const Dtype dtype : {Dtype::kF64, Dtype::kF32, Dtype::kI64, Dtype::kI32}) {
    c.normalizer_dtype = dtype;
    EXPECT_EQ(first_difference(run_case(c, config()).results, host), "") << flce::name_of(dtype);
  }
  expect_matches(c, oracle::evaluate(c.in), host, describe(c, config()));
}

TEST_P(InputsTest, TargetsNextToGarbage) {
  // Nothing is read past the last target or hidden row: poison there changes no bit.
  for (const std::int64_t tokens : {1, 31, 33, 91, 1017}) {
    Case c = basic_case({tokens, 8, 40}, GetParam().dtype, 41);
    const Results first = run_case(c, {GetParam().method, 64}).results;
    c.layout.offset = 3;
    c.layout.hidden_gap = 1;
    const Results second = run_case(c, {GetParam().method, 64}).results;
    EXPECT_EQ(difference_of_calls(first, second, GetParam().dtype), "") << tokens;
  }
}

INSTANTIATE_TEST_SUITE_P(Op, InputsTest, testing::ValuesIn(methods_and_dtypes()), param_name);

}  // namespace
}  // namespace flce_test
