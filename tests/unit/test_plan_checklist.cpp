// SPDX-License-Identifier: Apache-2.0
// What the checklist offers must save, and save exactly what it says. A walk over problems, devices
// and requests reads each sentence as a user would, plans what it names, and compares.
#include <fmt/core.h>
#include <gtest/gtest.h>

#include <cctype>
#include <iterator>
#include <sstream>
#include <string>
#include <vector>

#include "cuda/route.hpp"
#include "flce/advice.hpp"
#include "test_plan_support.hpp"

namespace flce::test {
namespace {

DeviceCaps small_card(const char* name, std::uint64_t memory_bytes) {
  DeviceCaps caps = caps_of(name);
  caps.memory_bytes = memory_bytes;
  return caps;
}

std::vector<DeviceCaps> devices() {
  DeviceCaps cramped = fixed_cpu(7);
  cramped.memory_bytes = 3'000'000'000;
  return {fixed_cpu(2),
          fixed_cpu(64),
          cramped,
          caps_of("h200"),
          small_card("h200", 0),
          caps_of("a100-80"),
          caps_of("b200"),
          small_card("rtx4090", 6'000'000'000)};
}

constexpr const char* kSizes[] = {"n0_h64_v100",
                                  "n1_h8_v1",
                                  "n3_h8_v9",
                                  "n37_h65_v129",
                                  "n512_h2048_v8192",
                                  "n1000_h72_v50257",
                                  "n2049_h4096_v32001",
                                  "n4096_h64_v5000",
                                  "n4096_h4096_v128256",
                                  "n5000_h768_v50257",
                                  "n8192_h2304_v256000",
                                  "n16384_h4096_v128256",
                                  "n65536_h4096_v128256"};
constexpr const char* kKinds[] = {"f32 mean",
                                  "f64 sum",
                                  "f16 mean",
                                  "bf16 mean",
                                  "bf16 none upstream=per_token",
                                  "bf16 mean grad_weight=f32",
                                  "bf16 mean grad_weight=f32 accumulate",
                                  "bf16 mean label_smoothing=0.1 bias grad_bias",
                                  "bf16 mean softcap=30 entropy topk=5",
                                  "bf16 mean no_grad_hidden",
                                  "bf16 mean no_grad_hidden no_grad_weight",
                                  "bf16 mean split"};
constexpr const char* kRequests[] = {"",
                                     "method=fused",
                                     "method=recompute",
                                     "method=chunked",
                                     "method=naive",
                                     "method=naive-eager",
                                     "chunk=1",
                                     "chunk=100",
                                     "chunk=1024",
                                     "chunk=65536",
                                     "policy=liger",
                                     "budget=1GB",
                                     "budget=40MB",
                                     "method=recompute chunk=64 budget=300MB",
                                     "route=portable",
                                     "route=portable chunk=3000",
                                     "route=hopper",
                                     "route=hopper chunk=128"};

// Calls `visit` with the report of each request of the walk that makes sense.
template <typename Visit>
int walk(Visit visit) {
  int count = 0;
  for (const DeviceCaps& caps : devices()) {
    for (const char* size : kSizes) {
      for (const char* kind : kKinds) {
        for (const char* request : kRequests) {
          const ProblemText text = parse_problem(std::string(size) + ' ' + kind + ' ' + request);
          Plan report;
          try {
            report = plan_report(text.problem, caps, text.request);
          } catch (const Error&) {
            continue;  // a route on a CPU
          }
          SCOPED_TRACE(std::string(caps.name.data()) + ": " +
                       format_problem(text.problem, text.request));
          visit(report);
          ++count;
          if (testing::Test::HasFailure()) return count;
        }
      }
    }
  }
  return count;
}

// The planner's answer to the problem with these words in place of the request at hand.
Plan planned(const Plan& report, const std::string& words) {
  const ProblemText text = parse_problem(format_problem(report.problem) + ' ' + words);
  return plan(text.problem, report.caps, text.request);
}

bool saves(const Plan& other, const Plan& report) {
  return report.method == Method::kAuto || other.extra_bytes < report.extra_bytes;
}

struct Named {
  std::string words;
  std::string size;  // as printed
};

bool is_request(const std::string& word) {
  for (const char* name : {"method=", "chunk=", "budget=", "route="}) {
    if (word.starts_with(name)) return true;
  }
  return word == "tf32";
}

// The requests that a sentence names: words of one, "takes" or "is the least that works,", and a
// size. By words: std::regex does not compile under ASan with gcc 12 and warnings as errors.
std::vector<Named> named_in(const std::string& sentence) {
  std::istringstream stream(sentence);
  const std::vector<std::string> words{std::istream_iterator<std::string>(stream), {}};
  const auto word = [&](std::size_t i) { return i < words.size() ? words[i] : std::string(); };
  std::vector<Named> found;
  for (std::size_t i = 0; i < words.size(); ++i) {
    if (!is_request(words[i])) continue;
    std::string request = words[i];
    while (is_request(word(i + 1))) request += ' ' + words[++i];
    const std::string verb = fmt::format("{} {} {} {} {}", word(i + 1), word(i + 2), word(i + 3),
                                         word(i + 4), word(i + 5));
    const std::size_t size = word(i + 1) == "takes"               ? i + 2
                             : verb == "is the least that works," ? i + 6
                                                                  : words.size();
    if (size >= words.size()) continue;
    std::string unit = word(size + 1);
    while (!unit.empty() && std::isalpha(unit.back()) == 0) unit.pop_back();
    found.push_back({request, word(size) + ' ' + unit});
  }
  return found;
}

TEST(PlanChecklist, WhatASentenceNamesSavesWhatItSays) {
  int num_named = 0;
  const int count = walk([&](const Plan& report) {
    if (report_of(report, Method::kNaive).peak_bytes == 0) return;
    const std::vector<Offer> offers = oom_offers(report);
    const std::vector<std::string> steps = oom_checklist(report);
    std::size_t in_sentences = 0;
    for (const std::string& step : steps) {
      const std::vector<Named> named = named_in(step);
      // Nothing is named in other words than those that were read, but by a planner that refuses.
      if (!contains(step, "not as asked")) {
        EXPECT_EQ(contains(step, "="), !named.empty()) << step;
      }
      for (const Named& one : named) {
        const Plan other = planned(report, one.words);
        EXPECT_TRUE(saves(other, report)) << step;
        EXPECT_EQ(format_bytes(other.extra_bytes), one.size) << step;
      }
      in_sentences += named.size();
    }
    EXPECT_EQ(in_sentences, offers.size());
    num_named += static_cast<int>(in_sentences);
  });
  EXPECT_GT(count, 10000);
  EXPECT_GT(num_named, count / 2);
}

TEST(PlanChecklist, AnOfferIsThePlannersAnswerToTheByte) {
  walk([](const Plan& report) {
    std::uint64_t before = report.method == Method::kAuto ? ~std::uint64_t{0} : report.extra_bytes;
    for (const Offer& offer : oom_offers(report)) {
      const Plan other = plan(report.problem, report.caps, offer.request);
      EXPECT_EQ(other.extra_bytes, offer.extra_bytes);
      EXPECT_EQ(static_cast<int>(other.method), static_cast<int>(offer.method));
      EXPECT_EQ(other.chunk, offer.chunk);
      EXPECT_EQ(gemm_calls(other), offer.gemm_calls);
      EXPECT_LT(offer.extra_bytes, before);
      EXPECT_TRUE(offer.request.budget_bytes == 0 ||
                  offer.extra_bytes <= offer.request.budget_bytes);
      before = offer.extra_bytes;
    }
  });
}

// With a byte less than the last offer nothing works: there is no more to offer.
TEST(PlanChecklist, TheLastOfferIsTheLeastThatThereIs) {
  walk([](const Plan& report) {
    if (report_of(report, Method::kNaive).peak_bytes == 0) return;
    const std::vector<Offer> offers = oom_offers(report);
    const std::uint64_t least = offers.empty() ? report.extra_bytes : offers.back().extra_bytes;
    if (least <= 1) return;  // a budget of 0 is none
    const PlanRequest less{.budget_bytes = least - 1, .route = report.request.route};
    EXPECT_EQ(static_cast<int>(plan_report(report.problem, report.caps, less).method),
              static_cast<int>(Method::kAuto))
        << less.budget_bytes;
  });
}

// Smaller chunks are the portable route's, whose sum of grad_weight is twice as large.
TEST(PlanChecklist, AChunkThatTakesMoreIsNotOffered) {
  if (!cuda::has_hopper()) GTEST_SKIP() << "this build is without the Hopper kernels";
  const Problem p = problem_by("n16384_h4096_v128256 bf16 mean");
  const Plan report = plan_report(p, caps_of("h200"));
  const Plan dear = planned(report, "method=fused chunk=1024");
  EXPECT_GT(dear.extra_bytes, report.extra_bytes);
  const std::string step = oom_checklist(report)[kBudgetStep - 1];
  EXPECT_TRUE(contains(step, "method=fused chunk=2048 takes 1.62 GB instead of 2.16 GB")) << step;
  EXPECT_FALSE(contains(step, "chunk=1024")) << step;
  // Where no smaller chunk saves, it says which one it looked at, and what does save.
  const Plan smallest = plan_report(p, caps_of("h200"), {.chunk = 2048});
  const std::string other = oom_checklist(smallest)[kBudgetStep - 1];
  EXPECT_TRUE(contains(other, "no smaller chunk of the table saves")) << other;
  EXPECT_TRUE(contains(other, "by route portable")) << other;
  EXPECT_TRUE(contains(other, "method=recompute takes ")) << other;
  // A chunk that turned the route is dearer than none.
  const std::string asked =
      oom_checklist(plan_report(p, caps_of("h200"), {.chunk = 1024}))[kBudgetStep - 1];
  EXPECT_TRUE(contains(asked, "method=fused takes 2.16 GB instead of 2.67 GB")) << asked;
}

TEST(PlanChecklist, TheBudgetKeepsToTheRouteThatWasAskedFor) {
  const Problem p = problem_by("n16384_h4096_v128256 bf16 mean");
  const PlanRequest portable{.route = Route::kPortable};
  const SmallestBudget least = smallest_budget(p, caps_of("h200"), portable);
  PlanRequest request = portable;
  request.budget_bytes = least.bytes;
  EXPECT_EQ(plan(p, caps_of("h200"), request).extra_bytes, least.bytes);
  request.budget_bytes -= 1;
  error_of(ErrorCode::kOutOfBudget, [&] { return plan(p, caps_of("h200"), request); });
  // A card that does not have the route has no budget for it.
  EXPECT_EQ(
      static_cast<int>(smallest_budget(p, caps_of("a100-80"), {.route = Route::kHopper}).method),
      static_cast<int>(Method::kAuto));
}

TEST(PlanChecklist, ThePlanOfAnotherMethodIsToldToFuse) {
  const Problem p = problem_by("n4096_h1024_v32000 f32 mean");
  for (const Method method : {Method::kNaive, Method::kChunked, Method::kNaiveEager}) {
    const Plan report = plan_report(p, fixed_cpu(), {.method = method});
    const std::string step = oom_checklist(report)[kFuseStep - 1];
    const std::string expected =
        "Fuse: method=fused takes " + format_bytes(report_of(report, Method::kFused).extra_bytes) +
        " beyond inputs and gradients instead of " + format_bytes(report.extra_bytes);
    EXPECT_TRUE(contains(step, expected)) << step;
  }
  const std::string done = oom_checklist(plan_report(p, fixed_cpu()))[kFuseStep - 1];
  EXPECT_TRUE(contains(done, "this plan does: fused")) << done;
}

// One chunk on a CPU is what naive computes.
TEST(PlanChecklist, WhereFusingSavesNothingItIsNotOffered) {
  const Problem p = problem_by("n64_h64_v1000 f32 mean");
  const Plan naive = plan_report(p, fixed_cpu(), {.method = Method::kNaive});
  ASSERT_EQ(report_of(naive, Method::kFused).extra_bytes, naive.extra_bytes);
  for (const Offer& offer : oom_offers(naive)) {
    EXPECT_NE(static_cast<int>(offer.method), static_cast<int>(Method::kNaive));
  }
  const std::string step = oom_checklist(naive)[kFuseStep - 1];
  EXPECT_FALSE(contains(step, "method=fused")) << step;
  const std::string fused = oom_checklist(plan_report(p, fixed_cpu()))[kFuseStep - 1];
  EXPECT_TRUE(contains(fused, "as much as naive")) << fused;
}

TEST(PlanChecklist, RequestsAreWordsOrOptions) {
  PlanRequest request{.method = Method::kRecompute, .chunk = 64, .budget_bytes = 1000};
  EXPECT_EQ(spell_request(request, Spelling::kWords), "method=recompute chunk=64 budget=1000");
  EXPECT_EQ(spell_request(request, Spelling::kOptions),
            "--method recompute --chunk 64 --budget 1000");
  request = {.route = Route::kPortable, .allow_tf32 = true};
  EXPECT_EQ(spell_request(request, Spelling::kOptions), "--route portable --tf32");
  EXPECT_EQ(spell_request({}, Spelling::kOptions), "");
}

// Where nothing serves as asked each method has its reason, which has its name once; a method that
// would serve, if it were asked for so, has its size.
TEST(PlanChecklist, WhatIsNotFusedHasItsReason) {
  int num_refused = 0;
  for (const char* text : {"n5000_h64_v50000 f32 mean method=fused policy=liger",
                           "n512_h32_v1000 f32 none upstream=per_token entropy grad_entropy"}) {
    ProblemText asked = parse_problem(text);
    for (std::uint64_t budget = 1000; budget < 1'000'000'000; budget += budget / 100) {
      asked.request.budget_bytes = budget;
      const Plan report = plan_report(asked.problem, fixed_cpu(), asked.request);
      if (report.method != Method::kAuto) break;
      const std::string step = oom_checklist(report)[kFuseStep - 1];
      if (!contains(step, "not as asked")) continue;
      ++num_refused;
      EXPECT_TRUE(contains(step, "not as asked. fused ")) << step;
      EXPECT_TRUE(contains(step, "; recompute ")) << step;
      for (const char* wrong : {"fused fused", "recompute recompute", "fused ;", "recompute ."}) {
        EXPECT_FALSE(contains(step, wrong)) << budget << ": " << step;
      }
    }
  }
  EXPECT_GT(num_refused, 100);
}

// What half the tokens and checkpointing are said to free is the difference of two steps.
TEST(PlanChecklist, TheStepIsComparedAsAWhole) {
  for (const char* model : {"gpt2", "llama3-8b", "qwen3-0.6b"}) {
    for (const std::int64_t tokens : {1, 2, 1001, 16384}) {
      for (const bool checkpointing : {false, true}) {
        const ModelShape shape = model_preset(model);
        Problem p;
        p.tokens = tokens, p.hidden = shape.hidden, p.vocab = shape.vocab, p.dtype = Dtype::kBF16;
        const AdviceRequest request{.model = &shape, .checkpointing = checkpointing};
        const DeviceCaps card = small_card("a100-80", 0);
        const auto total = [&](const Plan& plan, bool checkpointed) {
          return step_memory(shape, plan.problem).total(plan.extra_bytes, checkpointed);
        };
        const Plan now = plan_report(p, card);
        Problem half = p;
        half.tokens /= 2;
        const std::uint64_t step = total(now, checkpointing);
        const std::uint64_t freed = step - total(plan_report(half, card), checkpointing);
        const std::string text = oom_checklist(now, request)[5];
        EXPECT_TRUE(contains(text, "half the tokens take " + format_bytes(freed) + " less"))
            << text;
        const std::uint64_t kept = total(now, true);
        const std::string frees =
            "activation checkpointing takes " + format_bytes(step - kept) + " less";
        EXPECT_EQ(contains(text, "checkpointing"), !checkpointing && kept < step) << text;
        EXPECT_EQ(contains(text, frees), !checkpointing && kept < step) << text;
      }
    }
  }
}

}  // namespace
}  // namespace flce::test
