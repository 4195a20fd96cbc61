// SPDX-License-Identifier: Apache-2.0
// Eight threads in the C ABI at once, each with sizes, a method and options of its own: the bits of
// one thread alone, and to each the text of its own failures.
#include <gtest/gtest.h>

#include <atomic>
#include <cstring>
#include <string>
#include <thread>
#include <vector>

#include "flce/flce.h"

namespace flce_test {
namespace {

constexpr int kCallers = 8;
constexpr int kRounds = 10;

// Problem `i`, with all that a call reads and writes.
class Problem {
 public:
  explicit Problem(int i)
      : i_(i),
        tokens_(20 + 7 * i),
        hidden_size_(8 + 3 * i),
        vocab_(150 + 60 * i),
        hidden_(static_cast<std::size_t>(tokens_ * hidden_size_)),
        weight_(static_cast<std::size_t>(vocab_ * hidden_size_)),
        target_(static_cast<std::size_t>(tokens_)) {
    std::uint32_t state = 77U + static_cast<std::uint32_t>(i);
    const auto next = [&] { return state = state * 1664525U + 1013904223U; };
    for (auto* values : {&hidden_, &weight_}) {
      for (float& x : *values) x = static_cast<float>(next() >> 8) / (1 << 23) - 1.0F;
    }
    for (std::int64_t& y : target_) y = next() % static_cast<std::uint32_t>(vocab_);
    target_[3] = -100;
  }

  // Loss, gradients and, of every second problem, lse; "" if the call fails.
  std::string results(int num_threads) {
    const std::size_t sizes[] = {1, hidden_.size(), weight_.size(), target_.size()};
    std::vector<float> out(sizes[0] + sizes[1] + sizes[2] + sizes[3]);
    flce_args args = described(out.data());
    flce_plan_request request;
    flce_plan_request_init(&request, sizeof request);
    request.method = FLCE_NAIVE + i_ % 4;
    request.chunk = 9 + i_;
    request.num_threads = num_threads;
    flce_plan plan;
    plan.struct_size = sizeof plan;
    if (flce_make_plan(&args, &request, &plan) != FLCE_OK) return "";
    std::vector<std::byte> memory(plan.workspace_bytes + plan.saved_bytes + 128);
    std::byte* const workspace = aligned(memory.data());
    std::byte* const saved = aligned(workspace + plan.workspace_bytes);
    const bool is_done = is_split()
                             ? flce_forward(&args, &plan, workspace, plan.workspace_bytes, saved,
                                            plan.saved_bytes) == FLCE_OK &&
                                   flce_backward(&args, &plan, workspace, plan.workspace_bytes,
                                                 saved, plan.saved_bytes) == FLCE_OK
                             : flce_run(&args, &plan, workspace, plan.workspace_bytes) == FLCE_OK;
    if (!is_done) return "";
    return {reinterpret_cast<const char*>(out.data()), out.size() * sizeof(float)};
  }

  // Whether a target out of range is refused with a text that names it.
  bool fails_with_its_own_text() {
    target_[5] = 1000000 + i_;
    const bool failed = results(2).empty();
    target_[5] = 0;
    const std::string text = flce_last_error();
    return failed && text.find(std::to_string(1000000 + i_)) != std::string::npos;
  }

 private:
  bool is_split() const { return i_ % 3 == 1; }

  static std::byte* aligned(std::byte* data) {
    const auto past = reinterpret_cast<std::uintptr_t>(data) % 64;
    return data + (past == 0 ? 0 : 64 - past);
  }

  flce_matrix matrix(float* data, std::int64_t rows) const {
    return {data, rows, hidden_size_, hidden_size_, 1, FLCE_F32, 0};
  }

  flce_args described(float* out) {
    flce_args args;
    flce_args_init(&args, sizeof args);
    args.hidden = matrix(hidden_.data(), tokens_);
    args.weight = matrix(weight_.data(), vocab_);
    args.target = {target_.data(), tokens_, 1, FLCE_I64, 0};
    args.loss = {out, 1, 1, FLCE_F32, 0};
    args.grad_hidden = matrix(out + 1, tokens_);
    args.grad_weight = matrix(out + 1 + hidden_.size(), vocab_);
    if (i_ % 2 == 1) {
      args.lse = {out + 1 + hidden_.size() + weight_.size(), tokens_, 1, FLCE_F32, 0};
    }
    args.reduction = i_ % 2 == 0 ? FLCE_REDUCTION_MEAN : FLCE_REDUCTION_SUM;
    args.softcap = i_ % 3 == 0 ? 20.0 : 0.0;
    args.label_smoothing = i_ % 4 == 2 ? 0.1 : 0.0;
    args.z_loss_weight = i_ % 4 == 3 ? 0.01 : 0.0;
    args.scale = 1.0 + 0.1 * i_;
    args.pass = is_split() ? FLCE_PASS_FORWARD_BACKWARD : FLCE_PASS_RUN;
    return args;
  }

  int i_;
  std::int64_t tokens_;
  std::int64_t hidden_size_;
  std::int64_t vocab_;
  std::vector<float> hidden_;
  std::vector<float> weight_;
  std::vector<std::int64_t> target_;
};

TEST(CAbiThreads, EightCallersAtOnce) {
  std::vector<Problem> problems;
  std::vector<std::string> right;
  for (int i = 0; i < kCallers; ++i) {
    right.push_back(problems.emplace_back(i).results(1));
    ASSERT_NE(right.back(), "") << i << ": " << flce_last_error();
  }
  std::atomic<int> failures{0};
  std::vector<std::thread> callers;
  for (int i = 0; i < kCallers; ++i) {
    callers.emplace_back([&, i] {
      Problem& mine = problems[static_cast<std::size_t>(i)];
      for (int round = 0; round < kRounds; ++round) {
        failures += !mine.fails_with_its_own_text();
        mine = Problem(i);
        failures += mine.results(1 + (i + round) % 4) != right[static_cast<std::size_t>(i)];
      }
    });
  }
  for (std::thread& caller : callers) caller.join();
  EXPECT_EQ(failures, 0);
}

}  // namespace
}  // namespace flce_test
