// SPDX-License-Identifier: Apache-2.0
// Budgets: a hard limit that is never exceeded, and an error that names the smallest one that
// works.
#include <gtest/gtest.h>

#include <algorithm>
#include <random>
#include <vector>

#include "flce/advice.hpp"
#include "test_plan_support.hpp"

namespace flce::test {
namespace {

constexpr std::string_view kNamed = "the smallest budget that works is ";

std::uint64_t named_budget(const Problem& problem, const DeviceCaps& caps,
                           const PlanRequest& request) {
  const std::string text =
      error_of(ErrorCode::kOutOfBudget, [&] { return plan(problem, caps, request); });
  const std::uint64_t bytes = number_after(text, kNamed);
  EXPECT_GT(bytes, request.budget_bytes) << text;
  return bytes;
}

// The budget that the error names works, one byte less does not.
void check_named_budget(const Problem& problem, const DeviceCaps& caps, PlanRequest request) {
  request.budget_bytes = 1;
  const std::uint64_t smallest = named_budget(problem, caps, request);
  request.budget_bytes = smallest;
  EXPECT_LE(plan(problem, caps, request).extra_bytes, smallest);
  request.budget_bytes = smallest - 1;
  EXPECT_EQ(named_budget(problem, caps, request), smallest);
}

TEST(PlanBudget, TakesTheLargestChunkThatFits) {
  const Problem p = problem_by("n4096_h64_v5000 bf16 mean");
  const Plan unlimited = plan(p, fixed_cpu());
  const PlanRequest half{.budget_bytes = unlimited.extra_bytes / 2};
  const Plan limited = plan(p, fixed_cpu(), half);
  EXPECT_EQ(limited.method, Method::kFused);
  EXPECT_LE(limited.extra_bytes, half.budget_bytes);
  EXPECT_LT(limited.chunk, unlimited.chunk);
  PlanRequest one_more = half;
  one_more.method = Method::kFused;
  one_more.chunk = limited.chunk + 1;
  error_of(ErrorCode::kOutOfBudget, [&] { return plan(p, fixed_cpu(), one_more); });
  EXPECT_EQ(plan(p, fixed_cpu(), {.budget_bytes = unlimited.extra_bytes}).chunk, unlimited.chunk);
}

TEST(PlanBudget, TheNamedBudgetWorksAndOneByteLessDoesNot) {
  for (const char* text :
       {"n4096_h64_v5000 bf16 mean", "n4096_h64_v5000 f32 mean", "n100_h64_v5000 bf16 mean",
        "n1_h1_v1 f32 mean", "n4096_h64_v5000 bf16 none upstream=per_token split",
        "n4096_h64_v5000 f16 mean lse entropy topk=5", "n0_h64_v5000 bf16 mean",
        "n4096_h64_v5000 bf16 mean no_grad_hidden no_grad_weight"}) {
    for (const DeviceCaps& caps : {fixed_cpu(), fixed_cpu(64), caps_of("h200")}) {
      const Problem p = problem_by(text);
      check_named_budget(p, caps, {});
      check_named_budget(p, caps, {.method = Method::kNaive});
      check_named_budget(p, caps, {.method = Method::kRecompute});
      check_named_budget(p, caps, {.chunk = 64});
      check_named_budget(p, caps, {.policy = ChunkPolicy::kLiger});
    }
  }
}

TEST(PlanBudget, TheErrorNamesMethodChunkAndTheBestAlternative) {
  const Problem p = problem_by("n4096_h64_v5000 bf16 mean");
  const std::string text = error_of(ErrorCode::kOutOfBudget, [&] {
    return plan(p, fixed_cpu(), {.method = Method::kNaive, .budget_bytes = 1000});
  });
  EXPECT_TRUE(contains(text, "with method naive and chunk 4096")) << text;
  const std::uint64_t any = number_after(text, "with any method and chunk it is ");
  EXPECT_EQ(any, smallest_budget(p, fixed_cpu()).bytes) << text;
  EXPECT_LE(plan(p, fixed_cpu(), {.budget_bytes = any}).extra_bytes, any);
}

TEST(PlanBudget, AnExplicitChunkThatDoesNotFitIsRefused) {
  const Problem p = problem_by("n4096_h64_v5000 bf16 mean");
  PlanRequest request{.method = Method::kFused, .chunk = 1000};
  const std::uint64_t needed = plan(p, fixed_cpu(), request).extra_bytes;
  request.budget_bytes = needed;
  EXPECT_EQ(plan(p, fixed_cpu(), request).chunk, 1000);
  request.budget_bytes = needed - 1;
  const std::string text =
      error_of(ErrorCode::kOutOfBudget, [&] { return plan(p, fixed_cpu(), request); });
  EXPECT_EQ(number_after(text, kNamed), needed) << text;
}

// One chunk needs no accumulator of grad_weight: with a wide head and few tokens all of them at
// once can take less than a part of them.
TEST(PlanBudget, FindsThatOneChunkCanTakeLess) {
  const Problem p = problem_by("n900_h2048_v2000 f16 mean");
  const auto extra = [&](std::int64_t chunk) {
    return plan(p, fixed_cpu(), {.method = Method::kFused, .chunk = chunk}).extra_bytes;
  };
  ASSERT_LT(extra(900), extra(456));
  const PlanRequest request{.method = Method::kFused, .budget_bytes = extra(900)};
  EXPECT_EQ(plan(p, fixed_cpu(), request).chunk, 900);
}

Problem random_problem(std::mt19937_64& random) {
  const auto pick = [&](std::int64_t low, std::int64_t high) {
    return std::uniform_int_distribution<std::int64_t>(low, high)(random);
  };
  Problem p;
  p.tokens = pick(0, 1) == 0 ? pick(0, 40) : pick(1, 20'000);
  p.hidden = pick(1, 3000);
  p.vocab = pick(0, 1) == 0 ? pick(1, 300) : pick(1, 200'000);
  constexpr std::array kDtypes{Dtype::kF32, Dtype::kBF16, Dtype::kF16};
  p.dtype = kDtypes[static_cast<std::size_t>(pick(0, 2))];
  p.wants.grad_hidden = pick(0, 4) > 0;
  p.wants.grad_weight = pick(0, 4) > 0;
  p.wants.entropy = pick(0, 3) == 0;
  p.wants.argmax = pick(0, 3) == 0;
  p.wants.topk = pick(0, 3) == 0 ? pick(1, std::min<std::int64_t>(p.vocab, 20)) : 0;
  if (pick(0, 2) == 0) p.bias_dtype = Dtype::kF32;
  p.wants.grad_bias = p.has_bias() && pick(0, 1) == 0;
  if (pick(0, 3) == 0) p.class_weight_dtype = Dtype::kF32;
  if (pick(0, 3) == 0) p.grad_weight_dtype = Dtype::kF32;
  if (pick(0, 3) == 0) p.options.label_smoothing = 0.1;
  if (pick(0, 3) == 0) p.options.softcap = 30.0;
  if (pick(0, 3) == 0) p.pass = Pass::kForwardBackward;
  return p;
}

TEST(PlanBudget, IsNeverExceeded) {
  std::mt19937_64 random(20261201);
  int planned = 0;
  int refused = 0;
  for (int i = 0; i < 3000; ++i) {
    const Problem p = random_problem(random);
    const DeviceCaps caps = i % 3 == 0 ? caps_of("a100-80") : fixed_cpu(1 + i % 64);
    PlanRequest request;
    request.method = static_cast<Method>(i % 5);
    if (i % 7 == 0) request.chunk = 1 + i % 2000;
    if (i % 11 == 0) request.policy = ChunkPolicy::kLiger;
    const std::uint64_t unlimited = plan_report(p, caps, request).extra_bytes;
    request.budget_bytes = 1 + random() % (unlimited + unlimited / 4 + 2);
    const std::string text = format_problem(p, request);
    try {
      const Plan result = plan(p, caps, request);
      ++planned;
      EXPECT_LE(result.extra_bytes, request.budget_bytes) << text;
      EXPECT_GE(result.chunk, 1) << text;
      EXPECT_LE(result.chunk, std::max<std::int64_t>(p.tokens, 1)) << text;
      EXPECT_EQ(plan_report(p, caps, request).extra_bytes, result.extra_bytes) << text;
    } catch (const Error& error) {
      if (error.code() != ErrorCode::kOutOfBudget) continue;
      ++refused;
      EXPECT_EQ(static_cast<int>(plan_report(p, caps, request).method), 0) << text;
      request.budget_bytes = number_after(error.what(), kNamed);
      EXPECT_LE(plan(p, caps, request).extra_bytes, request.budget_bytes) << text;
      --request.budget_bytes;
      error_of(ErrorCode::kOutOfBudget, [&] { return plan(p, caps, request); });
    }
  }
  EXPECT_GT(planned, 500);
  EXPECT_GT(refused, 200);
}

// No chunk that could be asked for, by whatever route it takes, works with less.
void check_no_chunk_takes_less(const Problem& p, const DeviceCaps& caps, PlanRequest request,
                               std::mt19937_64& random) {
  request.budget_bytes = 1;
  const std::uint64_t smallest = named_budget(p, caps, request);
  std::vector<std::int64_t> chunks{1, 2, 3, 4, 5, 6, 8, 12, 16, 24, 32, 40, 48, p.tokens};
  for (int i = 0; i < 6; ++i) {
    chunks.push_back(1 +
                     static_cast<std::int64_t>(random() % static_cast<std::uint64_t>(p.tokens)));
  }
  for (const std::int64_t chunk : chunks) {
    request.chunk = std::min(chunk, p.tokens);
    EXPECT_GE(named_budget(p, caps, request), smallest) << format_problem(p, request);
  }
}

TEST(PlanBudget, NoChunkWorksWithLessThanTheNamedOne) {
  std::mt19937_64 random(11);
  const Problem packed = problem_by("n21_h320_v34451 f64 mean entropy");
  check_no_chunk_takes_less(packed, fixed_cpu(1), {.method = Method::kRecompute}, random);
  const Problem no_slab = problem_by("n3572_h4584_v207 f16 mean no_grad_weight");
  check_no_chunk_takes_less(no_slab, caps_of("h200"), {.method = Method::kRecompute}, random);
  const Problem portable = problem_by("n571_h4696_v8318 bf16 mean grad_weight=f32 no_grad_weight");
  check_no_chunk_takes_less(portable, caps_of("h200"), {}, random);
  for (int i = 0; i < 300; ++i) {
    Problem p = random_problem(random);
    p.tokens = std::max<std::int64_t>(p.tokens, 1);
    if (i % 2 == 0) p.hidden = (p.hidden + 7) / 8 * 8;
    const DeviceCaps caps = i % 3 == 0 ? caps_of("h200") : fixed_cpu(1 + i % 64);
    for (const Method method : {Method::kAuto, Method::kRecompute}) {
      check_no_chunk_takes_less(p, caps, {.method = method}, random);
    }
  }
}

// Half of the memory at least is used when the budget asks for a smaller chunk: the search does not
// give up at a chunk that is far too small.
TEST(PlanBudget, TheSearchFindsLargeChunks) {
  std::mt19937_64 random(7);
  for (int i = 0; i < 300; ++i) {
    Problem p = random_problem(random);
    p.tokens = 1000 + static_cast<std::int64_t>(random() % 9000);
    const DeviceCaps caps = i % 2 == 0 ? caps_of("a100-80") : fixed_cpu();
    PlanRequest request{.method = Method::kFused};
    const Plan unlimited = plan_report(p, caps, request);
    if (unlimited.method == Method::kAuto) continue;
    request.chunk = 1;
    const std::uint64_t least = plan(p, caps, request).extra_bytes;
    request.chunk = 0;
    if (least >= unlimited.extra_bytes) continue;
    request.budget_bytes = least + (unlimited.extra_bytes - least) / 2;
    const Plan limited = plan(p, caps, request);
    const std::string text = format_problem(p, request);
    EXPECT_LE(limited.extra_bytes, request.budget_bytes) << text;
    if (limited.chunk >= p.tokens) continue;
    request.chunk = limited.chunk + 1;
    if (request.chunk == p.tokens) continue;
    error_of(ErrorCode::kOutOfBudget, [&] { return plan(p, caps, request); });
  }
}

}  // namespace
}  // namespace flce::test
