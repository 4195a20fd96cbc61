// SPDX-License-Identifier: Apache-2.0
// Cases of kinds K15 to K21 and K29: mixed types, large grids, strides, aliasing, repeated calls,
// what is and is not paid for, metrics, repeatability.
#include <gtest/gtest.h>
#include <sys/mman.h>

#include <algorithm>
#include <cstring>

#include "cases/case_support.hpp"

namespace flce_test {
namespace {

using flce::Dtype;
using flce::Method;
using oracle::Reduction;

TEST(Cases, C055_MixedTypesAreRefusedByName) {
  const Case c = basic_case({4, 4, 6}, Dtype::kBF16, 15);
  const Memory memory(c);
  for (const Dtype other : {Dtype::kF32, Dtype::kF16, Dtype::kF64}) {
    flce::Inputs inputs = memory.inputs();
    inputs.weight.dtype = other;
    try {
      flce::problem_of(inputs, memory.outputs(), {});
      ADD_FAILURE() << "accepted";
    } catch (const flce::Error& error) {
      const std::string text = error.what();
      EXPECT_NE(text.find("weight"), std::string::npos) << text;
      EXPECT_NE(text.find("bf16"), std::string::npos) << text;
      EXPECT_NE(text.find(flce::name_of(other)), std::string::npos) << text;
    }
  }
  // A bias in f32 beside 16-bit operands is offered.
  for_all({Dtype::kBF16, Dtype::kF16}, [](Dtype dtype, Method method) {
    Case wide = basic_case({4, 4, 6}, dtype, 15);
    wide.vector_dtype = Dtype::kF32;
    wide.in.bias = {0.1F, 0.2F, 0.3F, -0.1F, 0.0F, 1.7F};
    wide.wants.grad_bias = true;
    const RunConfig config{method};
    check_case(wide, oracle::evaluate(wide.in), config);
  });
}

// Address space without memory behind it until a page is touched.
class Reserved {
 public:
  explicit Reserved(std::size_t bytes) : bytes_(bytes) {
    data_ = mmap(nullptr, bytes, PROT_READ | PROT_WRITE,
                 MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  }
  ~Reserved() {
    if (*this) munmap(data_, bytes_);
  }
  Reserved(const Reserved&) = delete;
  Reserved& operator=(const Reserved&) = delete;
  explicit operator bool() const { return data_ != MAP_FAILED; }
  void* data() const { return data_; }

 private:
  std::size_t bytes_;
  void* data_;
};

// The rows of `view`, 2^31 + 3 elements apart.
flce::MatrixView spread(const flce::MatrixView& view, const Reserved& memory) {
  flce::MatrixView wide = view;
  wide.data = memory.data();
  wide.row_stride = (std::int64_t{1} << 31) + 3;
  return wide;
}

void copy_rows(const flce::MatrixView& to, const flce::MatrixView& from) {
  const std::int64_t size = flce::size_of(from.dtype);
  for (std::int64_t i = 0; i < from.rows; ++i) {
    std::memcpy(static_cast<std::byte*>(to.data) + i * to.row_stride * size,
                static_cast<const std::byte*>(from.data) + i * from.row_stride * size,
                static_cast<std::size_t>(from.cols * size));
  }
}

TEST(Cases, C057_OffsetsBeyond32Bits) {
  if (on_cuda()) GTEST_SKIP() << "tests/gpu/test_large.cpp has it for a card";
  const Case c = basic_case({3, 8, 3}, Dtype::kBF16, 29);
  const std::size_t bytes = 3 * ((std::size_t{1} << 31) + 3) * 2;
  for (const Method method : kMethods) {
    SCOPED_TRACE(flce::name_of(method));
    const Reserved regions[4] = {Reserved(bytes), Reserved(bytes), Reserved(bytes),
                                 Reserved(bytes)};
    for (const Reserved& region : regions) {
      if (!region) GTEST_SKIP() << "the system reserves no " << bytes << " bytes of addresses";
    }
    const Results want = run_with(c, method, 2);
    const Memory memory(c);
    flce::Inputs inputs = memory.inputs();
    flce::Outputs outputs = memory.outputs();
    inputs.hidden = spread(memory.hidden.matrix(), regions[0]);
    inputs.weight = spread(memory.weight.matrix(), regions[1]);
    outputs.grad_hidden = spread(memory.grad_hidden.matrix(), regions[2]);
    outputs.grad_weight = spread(memory.grad_weight.matrix(), regions[3]);
    copy_rows(inputs.hidden, memory.hidden.matrix());
    copy_rows(inputs.weight, memory.weight.matrix());
    const flce::Plan plan = flce::plan(flce::problem_of(inputs, outputs, {}), caps_with(1),
                                       {.method = method, .chunk = 2});
    Block workspace(plan.workspace_bytes);
    flce::run(plan, inputs, outputs, workspace.span());
    copy_rows(memory.grad_hidden.matrix(), outputs.grad_hidden);
    copy_rows(memory.grad_weight.matrix(), outputs.grad_weight);
    EXPECT_EQ(first_difference(memory.results(), want), "");
  }
}

TEST(Cases, C057_BytesBeyond32BitsArePlanned) {
  flce::Problem problem;
  problem.tokens = std::int64_t{1} << 20;
  problem.hidden = std::int64_t{1} << 13;
  problem.vocab = std::int64_t{1} << 20;
  flce::DeviceCaps caps = caps_with(2);
  caps.memory_bytes = 0;
  const std::uint64_t logits = std::uint64_t{1} << 42;  // N * V in f32
  const flce::Plan naive = flce::plan(problem, caps, {.method = Method::kNaive});
  EXPECT_GE(naive.workspace_bytes, logits);
  EXPECT_LE(naive.workspace_bytes, logits + logits / 64);
  EXPECT_EQ(naive.output_bytes, std::uint64_t{4} + 2 * (std::uint64_t{1} << 33) * 4);
}

TEST(Cases, C059_MoreTokensThan16BitsCount) {
  for_all({Dtype::kF32, Dtype::kBF16}, [](Dtype dtype, Method method) {
    for (const std::int64_t tokens : {65535, 65536, 131073}) {
      Case c = basic_case({tokens, 8, 16}, dtype, 16);
      c.in.reduction = Reduction::kNone;
      const Results results = run_with(c, method);
      Case last = c;  // the last eight tokens alone
      last.in.tokens = 8;
      last.in.x.assign(c.in.x.end() - 64, c.in.x.end());
      last.in.target.assign(c.in.target.end() - 8, c.in.target.end());
      const oracle::Result want = oracle::evaluate(last.in);
      EXPECT_TRUE(all_near(Values(results.loss.end() - 8, results.loss.end()), want.loss, 1e-6));
      EXPECT_LE(relative_error(Values(results.grad_hidden.end() - 64, results.grad_hidden.end()),
                               want.grad_hidden),
                std::max(2e-6, 2 * oracle::unit_roundoff(format_of(dtype))));
    }
    Case wide = flat_head(dtype, 16 * 65536, 0.0, {16 * 65536 - 1, 3});
    EXPECT_TRUE(all_near(run_with(wide, method).loss, {std::log(16.0 * 65536)}, 1e-6));
  });
}

TEST(Cases, C060_SlicesOfLargerMatrices) {
  for_all([](Dtype dtype, Method method) {
    Case c = basic_case({8, 8, 20}, dtype, 17);
    const Results packed = run_with(c, method, 3);
    const auto expect_same = [&](std::int64_t hidden_gap, std::int64_t weight_gap,
                                 std::int64_t offset) {
      Case sliced = c;
      sliced.layout.hidden_gap = hidden_gap;
      sliced.layout.weight_gap = weight_gap;
      sliced.layout.offset = offset;
      EXPECT_EQ(difference_of_calls(run_with(sliced, method, 3), packed, dtype), "")
          << hidden_gap << " " << weight_gap << " " << offset;
    };
    expect_same(8, 0, 0);  // big(N, 2H)[:, :H], and big(2N, H)[::2]
    expect_same(0, 8, 8);  // big(V, 2H)[:, H:]
    expect_same(1, 3, 1);
  });
  // A transposed weight has no unit inner stride and is refused by name.
  const Memory memory(basic_case({2, 4, 5}, Dtype::kF32, 18));
  flce::Inputs inputs = memory.inputs();
  inputs.weight.row_stride = 1;
  inputs.weight.col_stride = 5;
  try {
    flce::problem_of(inputs, memory.outputs(), {});
    ADD_FAILURE() << "accepted";
  } catch (const flce::Error& error) {
    EXPECT_NE(std::string(error.what()).find("weight"), std::string::npos) << error.what();
  }
}

TEST(Cases, C064_InputsAreNeverWritten) {
  for_all([](Dtype dtype, Method method) {
    Case c = basic_case({20, 8, 50}, dtype, 19);
    Rng rng(20);
    c.in.bias = random_normals(dtype, 50, 1.0, rng);
    c.in.class_weight = random_weights(c, 50, rng);
    c.in.token_weight = random_weights(c, 20, rng);
    c.wants.grad_bias = true;
    const Memory memory(c);
    flce::PlanRequest request;
    request.method = method;
    request.chunk = 6;
    const flce::Plan plan = flce::plan(memory.problem(c), caps_with(2), request);
    Block workspace(plan.workspace_bytes);
    flce_test::run(plan, memory.inputs(), memory.outputs(), workspace.span());
    EXPECT_EQ(memory.damage(), "");
    EXPECT_NE(memory.written(), "");
  });
}

TEST(Cases, C065_BackwardTwiceOnWhatOneForwardKept) {
  for_all([](Dtype dtype, Method method) {
    if (method == Method::kFused) return;  // its backward multiplies what forward made
    for (const bool frozen_hidden : {false, true}) {
      Case c = basic_case({11, 8, 40}, dtype, 21);
      c.wants.grad_hidden = !frozen_hidden;
      c.in.grad_output = {1.0};
      const Memory memory(c);
      flce::PlanRequest request;
      request.method = method;
      request.chunk = 4;
      const flce::Plan plan =
          flce::plan(memory.problem(c, flce::Pass::kForwardBackward), caps_with(1), request);
      Block workspace(plan.workspace_bytes);
      Block saved(plan.saved_bytes);
      flce_test::forward(plan, memory.inputs(), memory.outputs(), workspace.span(), saved.span());
      flce_test::backward(plan, memory.inputs(), memory.outputs(), workspace.span(), saved.span());
      const Results once = memory.results();
      Storage three({dtype, 1, 1, 1, 0});
      three.write(Values{3.0});
      flce::Inputs inputs = memory.inputs();
      inputs.grad_output = three.vector();
      flce_test::backward(plan, inputs, memory.outputs(), workspace.span(), saved.span());
      Values want = once.grad_weight;
      for (double& value : want) value *= 3;
      EXPECT_LE(relative_error(memory.results().grad_weight, want), digits(dtype));
    }
  });
}

TEST(Cases, C070_FrozenHeadOrTrunk) {
  for_all([](Dtype dtype, Method method) {
    Case c = basic_case({30, 16, 90}, dtype, 22);
    c.in.bias.assign(90, 0.25);
    c.wants.grad_bias = true;
    const Results full = run_with(c, method, 8);
    Case head = c;
    head.wants.grad_weight = head.wants.grad_bias = false;
    const auto expect_same = [&](const Case& part, std::vector<double> Results::*gradient) {
      Results want;
      Results got;
      want.*gradient = full.*gradient;
      got.*gradient = run_with(part, method, 8).*gradient;
      EXPECT_EQ(difference_of_calls(got, want, dtype), "");
    };
    expect_same(head, &Results::grad_hidden);
    Case trunk = c;
    trunk.wants.grad_hidden = false;
    expect_same(trunk, &Results::grad_weight);
    Case bias = c;
    bias.wants.grad_hidden = bias.wants.grad_weight = false;
    expect_same(bias, &Results::grad_bias);
  });
}

flce::Problem large_problem(std::int64_t tokens) {
  flce::Problem problem;
  problem.tokens = tokens;
  problem.hidden = 1024;
  problem.vocab = 131072;
  problem.dtype = Dtype::kBF16;
  return problem;
}

constexpr std::uint64_t kMiB = 1024 * 1024;

TEST(Cases, C070_FrozenHeadNeedsNoVocabularySizedBuffer) {
  if (on_cuda()) GTEST_SKIP() << "tests/gpu/test_memory.cpp measures it";
  flce::Problem problem = large_problem(2048);
  problem.wants.grad_weight = false;
  const flce::Plan plan = flce::plan(problem, caps_with(2));
  EXPECT_EQ(plan.output_bytes, 2048 * 1024 * 2 + 4U);
  const flce::Plan recompute = flce::plan(problem, caps_with(2), {.method = Method::kRecompute});
  EXPECT_LT(recompute.extra_bytes, 128 * kMiB);
  problem.wants.grad_weight = true;
  EXPECT_GT(flce::plan(problem, caps_with(2)).peak_bytes, plan.peak_bytes + 255 * kMiB);
}

TEST(Cases, C071_EvaluationKeepsNothing) {
  flce::Problem problem = large_problem(8192);
  problem.wants = {.grad_hidden = false, .grad_weight = false};
  for (const Method method : {Method::kAuto, Method::kFused, Method::kRecompute}) {
    const flce::Plan plan = flce::plan(problem, caps_with(2), {.method = method});
    // On a card 128 MiB are a piece of the logits, 32 MiB the products' own and 8 or 16 MiB packed
    // hidden states.
    const std::uint64_t most = on_cuda() ? 178 * kMiB : 64 * kMiB;
    EXPECT_LT(plan.extra_bytes, most) << flce::name_of(plan.method);
    EXPECT_EQ(plan.output_bytes, 4U);
  }
  for_all([](Dtype dtype, Method method) {
    Case c = basic_case({30, 16, 90}, dtype, 23);
    const Results trained = run_with(c, method, 8);
    c.wants = {.grad_hidden = false, .grad_weight = false};
    Results loss;
    loss.loss = trained.loss;
    EXPECT_EQ(difference_of_calls(run_with(c, method, 8), loss, dtype), "");
  });
}

TEST(Cases, C073_AccuracyWithoutLogits) {
  for_all([](Dtype dtype, Method method) {
    Case c = identity_head(dtype, 2, {0, 1, 2, 0, 0, 3}, {1, 1, -100});
    c.wants.argmax = c.wants.num_correct = c.wants.num_valid = true;
    Results results = run_with(c, method);
    EXPECT_EQ(results.num_correct[0], 1);
    EXPECT_EQ(results.num_valid[0], 2);
    EXPECT_EQ(results.argmax, (Integers{1, 0, 0}));
    for (const std::int64_t vocab : {4, 1000}) {  // ties, also over tiles
      Case ties = basic_case({3, 4, vocab}, dtype, 24);
      std::fill(ties.in.x.begin(), ties.in.x.end(), 0.0);
      ties.in.target = {0, 1, 0};
      ties.wants.argmax = ties.wants.num_correct = true;
      results = run_with(ties, method);
      EXPECT_EQ(results.argmax, (Integers{0, 0, 0}));
      EXPECT_EQ(results.num_correct[0], 2);
    }
    c.in.target = {-100, -100, -100};
    results = run_with(c, method);
    EXPECT_EQ(results.num_correct[0], 0);
    EXPECT_EQ(results.num_valid[0], 0);
  });
}

TEST(Cases, C074_EveryCombinationOfOptionalOutputs) {
  for_all({Dtype::kF32, Dtype::kBF16}, [](Dtype dtype, Method method) {
    Case c = basic_case({9, 8, 33}, dtype, 25);
    const Results plain = run_with(c, method, 4);
    for (int mask = 0; mask < 256; ++mask) {
      Case some = c;
      flce::Wants& wants = some.wants;
      int bit = 0;
      for (bool* want : {&wants.lse, &wants.logprob, &wants.entropy, &wants.z_loss, &wants.argmax,
                         &wants.num_correct, &wants.num_valid}) {
        *want = ((mask >> bit++) & 1) != 0;
      }
      wants.topk = some.in.topk = (mask >> bit) & 1;
      const Results results = run_with(some, method, 4);
      ASSERT_EQ(results.lse.empty(), !wants.lse);
      ASSERT_EQ(results.argmax.empty(), !wants.argmax);
      Results same;
      same.loss = results.loss;
      same.grad_hidden = results.grad_hidden;
      same.grad_weight = results.grad_weight;
      ASSERT_EQ(difference_of_calls(same, plain, dtype), "") << mask;
    }
  });
}

TEST(Cases, C099_TwentyRunsAndAnyNumberOfThreads) {
  for_all({Dtype::kF32, Dtype::kBF16}, [](Dtype dtype, Method method) {
    Case c = basic_case({512, 32, 1500}, dtype, 26);
    for (std::int64_t i = 0; i < 512; ++i) c.in.target[i] = i % 7;
    c.in.bias.assign(1500, 0.5);
    c.wants.grad_bias = true;
    const Results first = run_case(c, {method, 128, 1}).results;
    for (std::int32_t run = 0; run < 20; ++run) {
      const Results again = run_case(c, {method, 128, 1 + run % 3}).results;
      ASSERT_EQ(first_difference(first, again), "") << run;
    }
  });
}

}  // namespace
}  // namespace flce_test
