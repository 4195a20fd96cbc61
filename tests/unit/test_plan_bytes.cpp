// SPDX-License-Identifier: Apache-2.0
// Byte counts as text, and the bytes of inputs and outputs.
#include <gtest/gtest.h>

#include "plan/bytes.hpp"
#include "test_plan_support.hpp"

namespace flce::test {
namespace {

TEST(PlanBytes, ParsesPowersOf1024WithIAndOf1000Without) {
  EXPECT_EQ(parse_bytes("2GiB"), 2ull << 30);
  EXPECT_EQ(parse_bytes("500MB"), 500'000'000u);
  EXPECT_EQ(parse_bytes("1.5GB"), 1'500'000'000u);
  EXPECT_EQ(parse_bytes("1.5GiB"), 3ull << 29);
  EXPECT_EQ(parse_bytes("123456"), 123456u);
  EXPECT_EQ(parse_bytes("123456B"), 123456u);
  EXPECT_EQ(parse_bytes("64kB"), 64'000u);
  EXPECT_EQ(parse_bytes("64KiB"), 65'536u);
  EXPECT_EQ(parse_bytes("3 TiB"), 3ull << 40);
  EXPECT_EQ(parse_bytes(" 2gib "), 2ull << 30);
  EXPECT_EQ(parse_bytes("80G"), 80'000'000'000u);
  EXPECT_EQ(parse_bytes("0"), 0u);
  EXPECT_EQ(parse_bytes("0.001kB"), 1u);
}

TEST(PlanBytes, IsExactUpTo64Bits) {
  EXPECT_EQ(parse_bytes("18446744073709551615"), 18446744073709551615ull);
  EXPECT_EQ(parse_bytes("9007199254740993"), 9007199254740993ull);  // not a double
  EXPECT_EQ(parse_bytes("16777215.999999999TiB"), 18446744073709550516ull);
}

TEST(PlanBytes, RefusesWhatIsNotANumberOfBytes) {
  for (const char* text : {"",
                           " ",
                           "GiB",
                           "-1",
                           "+1",
                           "1e9",
                           "nan",
                           "inf",
                           "2 GiBs",
                           "1..5GB",
                           "1.2.3",
                           "0x10",
                           "2GB3",
                           "1,5GB",
                           "18446744073709551616",
                           "99999999999999999999999999999999",
                           "16777216TiB",
                           "1.5",
                           "1.5B",
                           "2 2GB"}) {
    const std::string message =
        error_of(ErrorCode::kInvalidArgument, [&] { return parse_bytes(text); });
    EXPECT_TRUE(contains(message, std::string("'") + text + "'")) << message;
  }
}

TEST(PlanBytes, FormatsInDecimalUnits) {
  EXPECT_EQ(format_bytes(0), "0 B");
  EXPECT_EQ(format_bytes(999), "999 B");
  EXPECT_EQ(format_bytes(1000), "1.00 kB");
  EXPECT_EQ(format_bytes(134'217'728), "134.22 MB");
  EXPECT_EQ(format_bytes(999'999'999), "1.00 GB");
  EXPECT_EQ(format_bytes(35'991'322'624), "35.99 GB");
  EXPECT_EQ(format_bytes(18446744073709551615ull), "18.45 EB");
}

TEST(PlanBytes, CountsEveryInput) {
  Problem p = problem_by("n10_h4_v7 bf16 sum");
  const std::uint64_t base = 10 * 4 * 2 + 7 * 4 * 2 + 10 * 8;
  EXPECT_EQ(input_bytes_of(p), base);
  p.target_dtype = Dtype::kI32;
  EXPECT_EQ(input_bytes_of(p), base - 10 * 4);
  p.bias_dtype = Dtype::kF32;
  p.class_weight_dtype = Dtype::kBF16;
  p.token_weight_dtype = Dtype::kF32;
  p.temperature_dtype = Dtype::kF32;
  p.grad_entropy_dtype = Dtype::kBF16;
  p.normalizer_dtype = Dtype::kI64;
  EXPECT_EQ(input_bytes_of(p), base - 40 + 7 * 4 + 7 * 2 + 10 * 4 + 10 * 4 + 10 * 2 + 8);
  p = problem_by("n10_h4_v7 bf16 none upstream=per_token");
  EXPECT_EQ(input_bytes_of(p), base + 10 * 4);
  p = problem_by("n10_h4_v7 bf16 sum upstream=scalar");
  EXPECT_EQ(input_bytes_of(p), base + 4);
}

TEST(PlanBytes, CountsEveryOutput) {
  EXPECT_EQ(output_bytes_of(problem_by("n10_h4_v7 bf16 sum")), 4u + 80 + 56);
  EXPECT_EQ(output_bytes_of(problem_by("n10_h4_v7 f64 none")), 80u + 320 + 224);
  EXPECT_EQ(output_bytes_of(problem_by("n10_h4_v7 bf16 sum no_grad_hidden grad_weight=f32")),
            4u + 112);
  EXPECT_EQ(output_bytes_of(problem_by(
                "n10_h4_v7 bf16 sum no_grad_hidden no_grad_weight lse logprob entropy argmax "
                "num_correct num_valid topk=3 z_loss_part")),
            4u + 3 * 40 + 80 + 8 + 8 + 10 * 3 * (4 + 8) + 4);
  EXPECT_EQ(output_bytes_of(problem_by("n10_h4_v7 bf16 sum bias=f32 grad_bias")),
            4u + 80 + 56 + 28);
}

TEST(PlanBytes, SaturatesInsteadOfWrapping) {
  Problem p = problem_by("n1_h1_v1 f32 mean");
  p.tokens = p.hidden = p.vocab = std::int64_t{1} << 40;
  EXPECT_EQ(input_bytes_of(p), ~std::uint64_t{0});
  EXPECT_EQ(output_bytes_of(p), ~std::uint64_t{0});
}

}  // namespace
}  // namespace flce::test
