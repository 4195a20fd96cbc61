// SPDX-License-Identifier: Apache-2.0
// Route hopper where it differs from the portable one: offsets guessed from a sample of the
// vocabulary, rows whose guess was off and are made again, targets apart from the exponentials, and
// grad_weight summed over chunks in two halves. Each against the oracle.
#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "cases/case_support.hpp"
#include "gpu/hopper_case.hpp"
#include "gpu/packed_call.hpp"

namespace flce_test {
namespace {

using flce::Dtype;
using flce::Method;
using flce::Route;

constexpr double kInfinity = std::numeric_limits<double>::infinity();

using Hopper = HopperTest;

// Tiles are 128 or 256 rows and 128 or 192 columns, a block of the sum 64 long.
TEST_P(Hopper, SizesOfAnyResidue) {
  for (const Sizes& sizes :
       {Sizes{1, 8, 1}, Sizes{1, 8, 2}, Sizes{3, 16, 191}, Sizes{127, 8, 193}, Sizes{128, 64, 192},
        Sizes{129, 72, 385}, Sizes{257, 136, 1021}, Sizes{300, 256, 4099}, Sizes{1025, 24, 777}}) {
    Case c = hopper_case(sizes, 11);
    Rng rng(12);
    ignore_some(c, 0.2, rng);
    c.in.target[0] = sizes.vocab - 1;
    check(c);
    if (HasFailure()) return;
  }
}

TEST_P(Hopper, ChunksOfAnySize) {
  for (const std::int64_t chunk : {1, 7, 64, 100, 129, 299}) {
    for (const Dtype weight : {Dtype::kBF16, Dtype::kF32}) {
      Case c = hopper_case({300, 40, 500}, 13);
      c.grad_weight_dtype = weight;
      check(c, chunk);
      if (HasFailure()) return;
    }
  }
}

TEST_P(Hopper, AddsToWhatIsThere) {
  for (const std::int64_t chunk : {0, 70, 150}) {
    for (const Dtype weight : {Dtype::kBF16, Dtype::kF32}) {
      Case c = hopper_case({300, 40, 500}, 17);
      c.grad_weight_dtype = weight;
      Rng rng(18);
      c.grad_weight_start = random_normals(weight, 500 * 40, 1e-2, rng);
      check(c, chunk);
      if (HasFailure()) return;
    }
  }
}

TEST_P(Hopper, EveryOptionThatItTakes) {
  for (const oracle::Reduction reduction :
       {oracle::Reduction::kMean, oracle::Reduction::kSum, oracle::Reduction::kNone}) {
    for (const double scale : {1.0, -0.7, 30.0}) {
      Case c = hopper_case({200, 64, 900}, 19);
      Rng rng(20);
      ignore_some(c, 0.1, rng);
      c.in.reduction = reduction;
      c.in.scale = scale;
      c.in.z_loss = 1e-3;
      c.in.temperature = 0.8;
      c.in.class_weight = random_weights(c, 900, rng);
      c.in.token_weight = random_weights(c, 200, rng);
      c.in.class_weight[c.in.target[5] < 0 ? 0 : c.in.target[5]] = 0.0;
      c.in.token_weight[9] = 0.0;
      c.wants.z_loss = true;
      check(c, 90);
      if (HasFailure()) return;
    }
  }
}

TEST_P(Hopper, TemperatureOfEachToken) {
  Case c = hopper_case({150, 64, 700}, 23);
  Rng rng(24);
  for (int i = 0; i < 150; ++i) c.in.temperature_per_token.push_back(rng.uniform(0.3, 3.0));
  for (double& t : c.in.temperature_per_token) t = round_to(Dtype::kBF16, t);
  check(c);
}

TEST_P(Hopper, TinyAndHugeUpstream) {
  for (const double upstream : {1e-30, 1e-12, 65536.0, 1e20}) {
    Case c = hopper_case({100, 64, 700}, 29);
    c.in.grad_output = {round_to(Dtype::kBF16, upstream)};
    check(c);
    if (HasFailure()) return;
  }
}

// What an offset from a sample of 256 rows can miss.
TEST_P(Hopper, LogitsThatASampleMisses) {
  constexpr std::int64_t kVocab = 1500;
  Rng rng(37);
  const auto normal = [&](double size) {
    return [&rng, size](std::int64_t, std::int64_t) { return size * rng.normal(); };
  };
  // One huge logit outside the sample (whose rows are multiples of 1500 / 256 = 5).
  check(with_logits(40, kVocab, [&](std::int64_t i, std::int64_t j) {
    return j == 501 ? 50.0 + 100.0 * static_cast<double>(i) : rng.normal();
  }));
  // One huge logit in it, which makes a deviation that nothing else has.
  check(with_logits(40, kVocab, [&](std::int64_t i, std::int64_t j) {
    return j == 500 ? 30.0 * static_cast<double>(i) : 0.0;
  }));
  check(with_logits(40, kVocab, [](std::int64_t i, std::int64_t j) {
    return j % 2 == 0 ? 10.0 * static_cast<double>(i) : -10.0 * static_cast<double>(i);
  }));
  check(with_logits(40, kVocab, [](std::int64_t, std::int64_t) { return 3.0; }));
  check(with_logits(40, kVocab,
                    [](std::int64_t i, std::int64_t) { return i % 2 == 0 ? 1e4 : -1e4; }));
  check(with_logits(40, kVocab,
                    [](std::int64_t i, std::int64_t j) { return (i + j) % 3 == 0 ? 1e4 : -1e4; }));
  check(with_logits(200, kVocab, normal(100.0)));
  check(with_logits(200, kVocab, normal(200.0)));
}

TEST_P(Hopper, TargetsFarBelowAndFarAbove) {
  Rng rng(41);
  for (const double size : {-1e4, -300.0, -60.0, 60.0, 300.0, 1e4}) {
    Case c = with_logits(40, 1000, [&](std::int64_t, std::int64_t) { return rng.normal(); });
    for (std::int64_t i = 0; i < 40; ++i) {
      c.in.w[c.in.target[i] * c.in.hidden + i] = round_to(Dtype::kBF16, size);
    }
    check(c);
    if (HasFailure()) return;
  }
}

// The runner-up shares the target's tile, and is all that is left of the sum without it.
TEST_P(Hopper, TheRunnerUpBesideTheTarget) {
  Case c = with_logits(64, 600, [](std::int64_t, std::int64_t) { return -30.0; });
  for (std::int64_t i = 0; i < 64; ++i) {
    c.in.target[i] = 192 + i;
    c.in.w[c.in.target[i] * c.in.hidden + i] = 20.0;
    c.in.w[(c.in.target[i] + 1) * c.in.hidden + i] = 12.0;
  }
  check(c);
}

TEST_P(Hopper, EqualTargets) {
  Case c = hopper_case({700, 40, 300}, 43);
  for (std::int64_t i = 0; i < 700; ++i) c.in.target[i] = i % 3 == 0 ? 7 : 290 + i % 2;
  check(c);
  check(c, 256);
  // Of a target's tokens some have no gradient, the first one among them.
  c.in.token_weight.assign(700, 1.0);
  for (std::int64_t i = 0; i < 700; i += 5) c.in.token_weight[i] = 0.0;
  c.in.token_weight[1] = c.in.token_weight[2] = 0.0;
  check(c);
  c.grad_weight_dtype = Dtype::kF32;
  check(c, 256);
}

// More vocabulary than a slab of `recompute` has at most: grad_hidden is a sum, too.
TEST_P(Hopper, SumsOverSlabs) {
  for (const std::int64_t chunk : {0, 64}) {
    for (const Dtype weight : {Dtype::kBF16, Dtype::kF32}) {
      Case c = hopper_case({150, 40, 70001}, 45);
      Rng rng(46);
      ignore_some(c, 0.2, rng);
      c.in.target[3] = 70000;
      c.in.target[4] = c.in.target[100] = 32640;
      c.grad_weight_dtype = weight;
      check(c, chunk);
      if (HasFailure()) return;
    }
  }
}

// Few tiles of grad_hidden and long sums: each is made in parts that are added in their order.
TEST_P(Hopper, FewTokensAndManyColumns) {
  for (const Sizes& sizes :
       {Sizes{1, 8, 8192}, Sizes{40, 72, 40009}, Sizes{300, 136, 33001}, Sizes{513, 264, 20001}}) {
    for (const Dtype weight : {Dtype::kBF16, Dtype::kF32}) {
      Case c = hopper_case(sizes, 71);
      Rng rng(72);
      ignore_some(c, 0.2, rng);
      c.in.target[0] = sizes.vocab - 1;
      c.grad_weight_dtype = weight;
      const RunConfig config{GetParam()};
      const Memory memory(c);
      const flce::Plan plan = run_case(c, config).plan;
      EXPECT_GT(plan.slots[static_cast<std::size_t>(flce::Slot::kHiddenParts)].bytes, 0u);
      check(c);
      if (HasFailure()) return;
    }
  }
}

TEST_P(Hopper, PoisonInIgnoredRowsStaysThere) {
  Case c = hopper_case({260, 64, 700}, 47);
  Rng rng(48);
  ignore_some(c, 0.4, rng);
  c.in.token_weight = random_weights(c, 260, rng);
  poison_ignored(c, rng);
  check(c);
  check(c, 100);
}

// A NaN of a valid row is that row's loss, that row's gradient, and all of grad_weight.
TEST_P(Hopper, NanAndInfinityInValidRowsShow) {
  for (const double poison : {std::nan(""), kInfinity, -kInfinity}) {
    Case c = hopper_case({140, 64, 500}, 53);
    c.in.reduction = oracle::Reduction::kNone;
    const Results clean = run_case(c, {GetParam()}).results;
    c.in.x[77 * 64 + 3] = poison;
    const Results got = run_case(c, {GetParam()}).results;
    for (std::int64_t i = 0; i < 140; ++i) {
      EXPECT_EQ(std::isnan(got.loss[i]), i == 77) << i << " of " << poison;
      if (i == 77) continue;
      EXPECT_EQ(got.loss[i], clean.loss[i]) << i;
      for (int k = 0; k < 64; ++k) {
        EXPECT_EQ(got.grad_hidden[i * 64 + k], clean.grad_hidden[i * 64 + k]) << i;
      }
    }
    EXPECT_TRUE(std::isnan(got.grad_hidden[77 * 64]));
    EXPECT_TRUE(std::isnan(got.grad_weight[0]));
    if (HasFailure()) return;
  }
}

TEST_P(Hopper, ThePortableRouteAgrees) {
  const Case c = hopper_case({500, 128, 3001}, 59, Data::kPeaked);
  const Memory memory(c);
  flce::PlanRequest request;
  request.method = GetParam();
  request.route = Route::kPortable;
  const flce::Plan plan = flce::plan(memory.problem(c), caps_with(1), request);
  EXPECT_EQ(plan.route, Route::kPortable);
  Block workspace(plan.workspace_bytes);
  flce_test::run(plan, memory.inputs(), memory.outputs(), workspace.span());
  expect_matches(c, oracle::evaluate(c.in), memory.results(), "portable");
  check(c);
}

TEST_P(Hopper, TwentyOfTwentyAndAGraphAreTheSameBits) {
  // Of the last one grad_hidden is made in parts.
  const std::pair<Sizes, std::int64_t> calls[] = {
      {{600, 72, 3000}, 0}, {{600, 72, 3000}, 200}, {{600, 72, 30000}, 0}};
  for (const auto& [sizes, chunk] : calls) {
    Case c = hopper_case(sizes, 61);
    for (std::int64_t i = 0; i < 600; i += 2) c.in.target[i] = 17;
    PackedCall call(c, {GetParam(), chunk});
    const flce::CudaStream stream;
    call.run(stream.handle());
    stream.synchronize();
    const auto want = call.output_bytes();
    flce::CudaGraph graph;
    graph.begin(stream.handle());
    call.run(stream.handle());
    graph.end(stream.handle());
    for (int round = 0; round < 20; ++round) {
      call.poison(std::byte{0xFF});
      graph.replay(stream.handle());
      stream.synchronize();
      ASSERT_EQ(call.output_bytes(), want) << round;
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Gpu, Hopper, testing::Values(Method::kFused, Method::kRecompute),
                         [](const auto& param) { return std::string(flce::name_of(param.param)); });

}  // namespace
}  // namespace flce_test
