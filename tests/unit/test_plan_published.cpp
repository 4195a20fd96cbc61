// SPDX-License-Identifier: Apache-2.0
// Figures that others have published about the memory of the loss, reproduced by the planner. They
// stand in docs/ too; a planner that gives other numbers has changed its meaning.
#include <gtest/gtest.h>

#include <cmath>

#include "flce/advice.hpp"
#include "test_plan_support.hpp"

namespace flce::test {
namespace {

constexpr double kGB = 1e9;
constexpr double kGiB = 1024.0 * 1024.0 * 1024.0;

double logits_bytes(std::int64_t tokens, std::int64_t vocab, int element) {
  return static_cast<double>(tokens) * static_cast<double>(vocab) * element;
}

double rounded(double value, int decimals) {
  const double scale = std::pow(10.0, decimals);
  return std::round(value * scale) / scale;
}

TEST(PlanPublished, Qwen3With4Times4096Tokens) {
  const ModelShape qwen = model_preset("qwen3-8b");
  EXPECT_EQ(qwen.vocab, 151936);
  EXPECT_EQ(qwen.hidden, 4096);
  const double hidden = 4.0 * 4096 * 4096 * 2;
  const double logits = logits_bytes(4 * 4096, qwen.vocab, 2);
  EXPECT_DOUBLE_EQ(rounded(hidden / kGB, 2), 0.13);
  EXPECT_DOUBLE_EQ(logits, 4'978'638'848.0);
  EXPECT_DOUBLE_EQ(rounded(logits / kGB, 2), 4.98);
  EXPECT_DOUBLE_EQ(std::floor(logits / hidden), 37.0);
  EXPECT_DOUBLE_EQ(rounded(logits_bytes(131072, qwen.vocab, 2) / kGB, 0), 40.0);
}

TEST(PlanPublished, Llama3With65536Tokens) {
  const ModelShape llama = model_preset("llama3-8b");
  EXPECT_EQ(llama.vocab, 128256);
  EXPECT_EQ(llama.hidden, 4096);
  EXPECT_DOUBLE_EQ(rounded(logits_bytes(65536, llama.vocab, 1) / kGB, 1), 8.4);
  EXPECT_DOUBLE_EQ(rounded(logits_bytes(65536, llama.vocab, 2) / kGB, 1), 16.8);
  EXPECT_DOUBLE_EQ(rounded(logits_bytes(65536, llama.vocab, 4) / kGB, 1), 33.6);
  EXPECT_DOUBLE_EQ(rounded(logits_bytes(81920, llama.vocab, 2) / kGiB, 2), 19.57);
}

// naive is N*V in f32, the 33.6 GB above, a packed copy of the hidden states and little else.
TEST(PlanPublished, NaiveHoldsTheLogitsInF32) {
  const Problem p = problem_by("n65536_h4096_v128256 bf16 mean");
  const Plan report = plan_report(p, caps_of("h200"));
  const MethodReport& naive = report_of(report, Method::kNaive);
  const double packed = 65536.0 * 4096 * 2;
  const double logits = static_cast<double>(naive.extra_bytes) - packed;
  EXPECT_GE(logits, logits_bytes(65536, 128256, 4));
  EXPECT_NEAR(logits / kGB, 33.6, 0.1);
}

// Published: 36.02 GB at the peak. 16 bytes a logit, inputs and gradients make 35.99.
TEST(PlanPublished, EagerCodeTakes36GB) {
  const Problem p = problem_by("n16384_h4096_v128256 bf16 mean");
  const std::uint64_t logits = 16384ull * 128256;
  for (const DeviceCaps& caps : {fixed_cpu(), caps_of("h200")}) {
    const Plan report = plan_report(p, caps);
    const MethodReport& eager = report_of(report, Method::kNaiveEager);
    // A card's kernels hand each token's loss from one to the next: at most 128 bytes.
    const std::uint64_t tokens = caps.kind == DeviceKind::kCuda ? 16384 * 128 + 1024 : 0;
    EXPECT_GE(eager.extra_bytes, logits * 16);
    EXPECT_LE(eager.extra_bytes, logits * 16 + tokens);
    EXPECT_DOUBLE_EQ(rounded(static_cast<double>(eager.peak_bytes) / kGB, 2), 35.99);
    EXPECT_NEAR(static_cast<double>(eager.peak_bytes) / kGB, 36.02, 0.04);
  }
  const Plan f32 = plan_report(problem_by("n16384_h4096_v128256 f32 mean"), fixed_cpu());
  EXPECT_EQ(report_of(f32, Method::kNaiveEager).extra_bytes, logits * 12);
}

// Every chunk's logits stay in 16 bits (32 for f32), the rest is one chunk's.
TEST(PlanPublished, ChunkedEagerKeepsThePlateau) {
  const std::uint64_t chunk = 1024;
  const PlanRequest request{.method = Method::kChunkedEager, .chunk = 1024};
  const Plan bf16 = plan(problem_by("n16384_h4096_v128256 bf16 mean"), fixed_cpu(), request);
  EXPECT_EQ(bf16.extra_bytes, 16384ull * 128256 * 2 + chunk * 128256 * 14);
  const Plan f32 = plan(problem_by("n16384_h4096_v128256 f32 mean"), fixed_cpu(), request);
  EXPECT_EQ(f32.extra_bytes, 16384ull * 128256 * 4 + chunk * 128256 * 8);
}

TEST(PlanPublished, EagerCodeWithoutGradientsKeepsNoGraph) {
  const Problem p = problem_by("n16384_h4096_v128256 bf16 mean no_grad_hidden no_grad_weight");
  const Plan report = plan_report(p, fixed_cpu(), {.chunk = 1024});
  EXPECT_EQ(report_of(report, Method::kNaiveEager).extra_bytes, 16384ull * 128256 * 10);
  EXPECT_EQ(report_of(report, Method::kChunkedEager).extra_bytes, 1024ull * 128256 * 10);
}

TEST(PlanPublished, TheChunkRuleOfLiger) {
  EXPECT_EQ(liger_rule(16384, 4096, 151936).inc, 38);  // Qwen3-8B
  EXPECT_EQ(liger_rule(16384, 4096, 128256).inc, 32);  // Llama-3-8B
  // A quarter of the tokens, a quarter of the rows.
  const ChunkRule llama = liger_rule(4096, 4096, 128256);
  EXPECT_EQ(llama.chunk, 128);
  EXPECT_EQ(llama.chunks, 32);
  EXPECT_NEAR(llama.logits_over_hidden, 1.0, 0.05);
  const ChunkRule qwen = liger_rule(16384, 4096, 151936);
  EXPECT_EQ(qwen.chunk, 512);
  EXPECT_EQ(qwen.chunks, 32);
  EXPECT_NEAR(qwen.logits_over_hidden, 1.0, 0.2);
}

TEST(PlanPublished, TheChunkRuleAtItsEdges) {
  EXPECT_EQ(liger_rule(0, 4096, 128256).chunk, 1);
  EXPECT_EQ(liger_rule(0, 4096, 128256).chunks, 0);
  EXPECT_EQ(liger_rule(1, 4096, 128256).chunk, 1);
  EXPECT_EQ(liger_rule(1000, 4096, 100).chunk, 1000);  // inc 1: next_pow2(1000) > N
  EXPECT_EQ(liger_rule(1'000'000'000, 1, 10'000'000).chunk, 128);
  EXPECT_EQ(liger_rule(1'000'000'000, 1, 10'000'000).inc, 10'000'000);
  for (const auto& [n, h, v] : {std::array<std::int64_t, 3>{-1, 4, 4}, {4, 0, 4}, {4, 4, 0}}) {
    error_of(ErrorCode::kInvalidArgument, [&] { return liger_rule(n, h, v); });
  }
}

}  // namespace
}  // namespace flce::test
