// SPDX-License-Identifier: Apache-2.0
// Calls as a trainer makes them on a card: recorded into a graph, several at once, again and again.
#include <gtest/gtest.h>

#include <array>
#include <memory>
#include <thread>

#include "cases/case_support.hpp"
#include "flce/device.hpp"
#include "gpu/packed_call.hpp"

namespace flce_test {
namespace {

using flce::Dtype;
using flce::Method;

class GpuCalls : public testing::TestWithParam<MethodAndDtype> {
 protected:
  RunConfig config(std::int64_t chunk) const { return {GetParam().method, chunk}; }
};

Case step_case(Dtype dtype, std::uint64_t seed, double ignored) {
  Case c = basic_case({600, 72, 3000}, dtype, seed);
  Rng rng(seed + 1);
  c.in.bias = random_normals(dtype, c.in.vocab, 1.0, rng);
  c.wants.grad_bias = c.wants.num_valid = true;
  ignore_some(c, ignored, rng);
  return c;
}

// Case 92: nothing of a call depends on what a host would have to read back.
TEST_P(GpuCalls, C092_AReplayedGraphSeesNewDataAndOtherIgnoredTokens) {
  const std::array steps = {
      step_case(GetParam().dtype, 1, 0.1), step_case(GetParam().dtype, 2, 0.8),
      step_case(GetParam().dtype, 3, 0.0), step_case(GetParam().dtype, 4, 1.0)};
  PackedCall call(steps[0], config(200));
  const flce::CudaStream stream;
  std::vector<std::vector<std::byte>> want;
  for (const Case& step : steps) {
    call.upload(step);
    call.run(stream.handle());
    stream.synchronize();
    want.push_back(call.output_bytes());
  }
  flce::CudaGraph graph;
  graph.begin(stream.handle());
  call.run(stream.handle());
  graph.end(stream.handle());
  for (int round = 0; round < 3; ++round) {
    for (std::size_t i = 0; i < steps.size(); ++i) {
      call.upload(steps[i]);
      call.poison(std::byte{0xFF});
      graph.replay(stream.handle());
      stream.synchronize();
      EXPECT_EQ(call.output_bytes(), want[i]) << "step " << i << " of round " << round;
    }
  }
  EXPECT_NE(want[0], want[1]);
}

TEST_P(GpuCalls, TwoStreamsAtOnce) {
  std::array<std::unique_ptr<PackedCall>, 2> calls;
  const flce::CudaStream streams[2];
  std::vector<std::vector<std::byte>> want;
  for (std::size_t i = 0; i < 2; ++i) {
    calls[i] = std::make_unique<PackedCall>(step_case(GetParam().dtype, 10 + i, 0.2), config(150));
    calls[i]->run(streams[i].handle());
    streams[i].synchronize();
    want.push_back(calls[i]->output_bytes());
    calls[i]->poison(std::byte{0xFF});
  }
  for (int round = 0; round < 8; ++round) {
    for (std::size_t i = 0; i < 2; ++i) calls[i]->run(streams[i].handle());
  }
  for (std::size_t i = 0; i < 2; ++i) {
    streams[i].synchronize();
    EXPECT_EQ(calls[i]->output_bytes(), want[i]) << "stream " << i;
  }
}

TEST_P(GpuCalls, TwoHostThreadsAtOnce) {
  std::array<std::vector<std::byte>, 2> want;
  std::array<int, 2> num_wrong = {};
  std::array<std::unique_ptr<PackedCall>, 2> calls;
  for (std::size_t i = 0; i < 2; ++i) {
    calls[i] = std::make_unique<PackedCall>(step_case(GetParam().dtype, 20 + i, 0.2), config(150));
    const flce::CudaStream stream;
    calls[i]->run(stream.handle());
    stream.synchronize();
    want[i] = calls[i]->output_bytes();
  }
  std::vector<std::thread> threads;
  for (std::size_t i = 0; i < 2; ++i) {
    threads.emplace_back([&, i] {
      const flce::CudaStream stream;
      for (int round = 0; round < 10; ++round) {
        calls[i]->run(stream.handle());
        stream.synchronize();
        num_wrong[i] += calls[i]->output_bytes() != want[i];
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(num_wrong, (std::array<int, 2>{}));
}

TEST_P(GpuCalls, TheDefaultStreamIsAStream) {
  PackedCall call(step_case(GetParam().dtype, 30, 0.2), config(150));
  const flce::CudaStream stream;
  call.run(stream.handle());
  stream.synchronize();
  const std::vector<std::byte> want = call.output_bytes();
  call.poison(std::byte{0xFF});
  call.run(nullptr);
  EXPECT_EQ(call.output_bytes(), want);
}

// A card's own part of case 27: unasked, nothing waits to say that a target is out of range. Its
// row is poisoned, and counts as a row without a target for all others.
TEST_P(GpuCalls, C027_ATargetOutOfRangePoisonsItsRowAlone) {
  constexpr std::int64_t kBad = 417;
  for (const std::int64_t wrong : {std::int64_t{3000}, std::int64_t{-1}, std::int64_t{1} << 40,
                                   -(std::int64_t{1} << 40), (std::int64_t{1} << 32) + 1}) {
    for (const bool mean : {false, true}) {
      Case c = step_case(GetParam().dtype, 40, 0.2);
      c.in.reduction = mean ? oracle::Reduction::kMean : oracle::Reduction::kNone;
      c.in.target[kBad] = c.in.ignore_index;
      const Results want = run_case(c, config(200)).results;
      c.in.target[kBad] = wrong;
      const Memory memory(c);
      const flce::Plan plan =
          flce::plan(memory.problem(c), caps_with(1), {.method = GetParam().method, .chunk = 200});
      const Block workspace(plan.workspace_bytes);
      flce_test::run(plan, memory.inputs(), memory.outputs(), workspace.span());
      Results got = memory.results();
      const std::size_t row = mean ? 0 : kBad;
      EXPECT_TRUE(std::isnan(got.loss[row])) << wrong;
      got.loss[row] = want.loss[row];
      EXPECT_EQ(first_difference(got, want), "") << wrong;
      EXPECT_EQ(memory.damage(), "") << wrong;
      try {
        flce_test::run(plan, memory.inputs(), memory.outputs(), workspace.span(),
                       {.check_targets = true});
        ADD_FAILURE() << "accepted " << wrong;
      } catch (const flce::Error& error) {
        EXPECT_EQ(error.code(), flce::ErrorCode::kTargetOutOfRange);
        const std::string text = error.what();
        EXPECT_NE(text.find(std::to_string(wrong)), std::string::npos) << text;
        EXPECT_NE(text.find(std::to_string(kBad)), std::string::npos) << text;
      }
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Gpu, GpuCalls, testing::ValuesIn(methods_and_dtypes()), param_name);

class GpuRepeats : public testing::TestWithParam<MethodAndDtype> {};

// Case 99: many equal targets, whose rows of grad_weight are sums that a race would reorder.
TEST_P(GpuRepeats, C099_TwentyOfTwentyAreTheSameBits) {
  Case c = basic_case({4096, 256, 32000}, GetParam().dtype, 50);
  for (std::int64_t i = 0; i < c.in.tokens; ++i) c.in.target[i] = i % 7 == 0 ? i : i % 11;
  c.in.bias.assign(32000, 0.5);
  c.wants.grad_bias = true;
  PackedCall call(c, {GetParam().method, 1024});
  const flce::CudaStream stream;
  std::vector<std::byte> first;
  for (int run = 0; run < 20; ++run) {
    call.poison(run % 2 == 0 ? std::byte{0xFF} : std::byte{0x7F});
    call.run(stream.handle());
    stream.synchronize();
    const std::vector<std::byte> bytes = call.output_bytes();
    if (run == 0) first = bytes;
    ASSERT_TRUE(bytes == first) << "run " << run;
  }
  EXPECT_TRUE(std::isfinite(call.loss()));
}

std::vector<MethodAndDtype> repeated() {
  std::vector<MethodAndDtype> all;
  for (const Method method : kMethods) {
    for (const Dtype dtype : {Dtype::kBF16, Dtype::kF32}) all.push_back({method, dtype});
  }
  return all;
}
INSTANTIATE_TEST_SUITE_P(Gpu, GpuRepeats, testing::ValuesIn(repeated()), param_name);

}  // namespace
}  // namespace flce_test
