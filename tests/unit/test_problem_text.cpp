// SPDX-License-Identifier: Apache-2.0
// The problem text: no word is silently overruled by another one.
#include <gtest/gtest.h>

#include <string>

#include "test_plan_support.hpp"

namespace flce::test {
namespace {

std::string refusal_of(const std::string& text) {
  return error_of(ErrorCode::kInvalidArgument, [&] { parse_problem(text); });
}

void expect_both_named(const std::string& text, const std::string& first,
                       const std::string& second) {
  const std::string refusal = refusal_of(text);
  EXPECT_TRUE(contains(refusal, "'" + first + "' and '" + second + "'")) << text << refusal;
  EXPECT_TRUE(contains(refusal, "leave out one")) << refusal;
}

TEST(ProblemText, TwoWordsAboutTheSameThingAreRefused) {
  expect_both_named("n4_h8_v16 n5_h8_v16", "n4_h8_v16", "n5_h8_v16");
  for (const auto& [first, second] : {std::pair{"bf16", "f32"},
                                      {"mean", "sum"},
                                      {"softcap=3", "softcap=4"},
                                      {"bias", "bias=f32"},
                                      {"temperature=2", "temperature=per_token"},
                                      {"lse", "lse"},
                                      {"split", "split"},
                                      {"tf32", "tf32"},
                                      {"topk=2", "topk=3"},
                                      {"target=i32", "target=i64"},
                                      {"method=fused", "method=naive"},
                                      {"budget=1GB", "budget=2GB"}}) {
    expect_both_named(std::string("n4_h8_v16 ") + first + ' ' + second, first, second);
    expect_both_named(std::string(first) + " n4_h8_v16 " + second, first, second);
  }
}

TEST(ProblemText, AWordThatMakesAnotherOneIdleIsRefused) {
  expect_both_named("n4_h8_v16 policy=liger chunk=2", "chunk=2", "policy=liger");
}

TEST(ProblemText, AnEmptyValueIsRefused) {
  for (const char* word : {"bias=", "softcap=", "upstream=", "method="}) {
    const std::string refusal = refusal_of(std::string("n4_h8_v16 ") + word);
    EXPECT_TRUE(contains(refusal, word + std::string("' in the problem text has no value")))
        << word;
  }
}

TEST(ProblemText, OnlyTypesThatWorkThereAreListed) {
  EXPECT_TRUE(contains(refusal_of("n4_h8_v16 grad_weight=f8"), "known: f64, f32, bf16, f16"));
  EXPECT_FALSE(contains(refusal_of("n4_h8_v16 grad_weight=f8"), "i64"));
  EXPECT_TRUE(contains(refusal_of("n4_h8_v16 grad_weight=none"), "unknown dtype 'none'"));
  EXPECT_TRUE(contains(refusal_of("n4_h8_v16 target=f32"), "class indices 'f32'; known: i64, i32"));
  const std::string text = error_of(ErrorCode::kInvalidArgument, [] { return dtype_of("none"); });
  EXPECT_TRUE(contains(text, "known: f64, f32, bf16, f16, i64, i32")) << text;
}

TEST(ProblemText, WordsThatOnlyLookAlikeGoTogether) {
  for (const char* text :
       {"n4_h8_v16 bf16 none z_loss=0.1 z_loss_part", "n4_h8_v16 f32 mean bias grad_bias",
        "n4_h8_v16 f32 mean upstream=scalar accumulate lse logprob tf32 split method=recompute",
        "n4_h8_v16 bf16 mean grad_weight=f32 accumulate chunk=2",
        // What a problem says that nobody wants is no contradiction: texts are made of problems.
        "n4_h8_v16 bf16 mean grad_weight=f32 no_grad_weight"}) {
    const ProblemText parsed = parse_problem(text);
    const std::string again = format_problem(parsed.problem, parsed.request);
    EXPECT_EQ(parse_problem(again).problem, parsed.problem) << text << '\n' << again;
    EXPECT_EQ(parse_problem(again).request, parsed.request) << text << '\n' << again;
  }
}

}  // namespace
}  // namespace flce::test
