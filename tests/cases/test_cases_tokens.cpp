// SPDX-License-Identifier: Apache-2.0
// Cases of kinds K01 to K05: empty batches, tiny shapes, unreduced losses, chunks, normalisation.
#include <gtest/gtest.h>

#include <algorithm>

#include "cases/case_support.hpp"

namespace flce_test {
namespace {

using flce::Dtype;
using flce::Method;
using oracle::Reduction;

double empty_loss(Reduction reduction) { return reduction == Reduction::kMean ? kNan : 0.0; }

TEST(Cases, C001_EveryTargetIgnored) {
  for_all([](Dtype dtype, Method method) {
    for (const Reduction reduction : kReductions) {
      Case c = head_case(dtype, 2, {1, 2, -1, 0, 3, 1}, {1, 0, 0, 1, 1, 1, -1, 2, 2, -1},
                         {-100, -100, -100});
      c.in.reduction = reduction;
      const Results results = run_with(c, method);
      const std::size_t size = reduction == Reduction::kNone ? 3 : 1;
      EXPECT_TRUE(all_near(results.loss, Values(size, empty_loss(reduction)), 0.0));
      expect_zero_gradients(results);
    }
  });
}

TEST(Cases, C004_EveryTargetIgnoredWithSmoothingAndBias) {
  for_all([](Dtype dtype, Method method) {
    for (const double smoothing : {0.0, 0.1}) {
      for (const bool has_bias : {false, true}) {
        for (const Reduction reduction : kReductions) {
          Case c = basic_case({5, 3, 8}, dtype, 1);
          c.in.target.assign(5, -100);
          c.in.smoothing = smoothing;
          c.in.reduction = reduction;
          if (has_bias) c.in.bias = Values(8, 0.5);
          c.wants.grad_bias = has_bias;
          const Results results = run_with(c, method);
          EXPECT_TRUE(all_near({results.loss[0]}, {empty_loss(reduction)}, 0.0));
          expect_zero_gradients(results);
        }
      }
    }
  });
}

TEST(Cases, C005_NoTokens) {
  for_all([](Dtype dtype, Method method) {
    for (const Reduction reduction : kReductions) {
      Case c = head_case(dtype, 4, {}, Values(28, 0.5), {});
      c.in.bias = Values(7, 0.25);
      c.in.reduction = reduction;
      c.wants.grad_bias = true;
      const Results results = run_with(c, method);
      const bool none = reduction == Reduction::kNone;
      EXPECT_TRUE(all_near(results.loss, none ? Values() : Values{empty_loss(reduction)}, 0.0));
      EXPECT_EQ(results.grad_hidden.size(), 0U);
      EXPECT_EQ(results.grad_weight, Values(28, 0.0));
      EXPECT_EQ(results.grad_bias, Values(7, 0.0));
    }
  });
}

TEST(Cases, C006_ChunksLargerThanTheBatch) {
  for_all([](Dtype dtype, Method method) {
    for (const std::int64_t chunk : {1, 1024}) {
      Case none = head_case(dtype, 4, {}, Values(28, 0.5), {});
      none.in.reduction = Reduction::kSum;
      EXPECT_EQ(run_with(none, method, chunk).loss, Values{0.0});
    }
    const Case few = basic_case({3, 4, 7}, dtype, 2);
    const Results whole = run_with(few, method, 3);
    EXPECT_EQ(first_difference(run_with(few, method, 1000), whole), "");
    EXPECT_TRUE(all_near(run_with(few, method, 1).grad_weight, whole.grad_weight, digits(dtype)));
  });
}

TEST(Cases, C007_ShapesThatDoNotFit) {
  const auto text_of = [](auto spoil) {
    const Memory memory(basic_case({2, 4, 5}, Dtype::kF32, 3));
    flce::Inputs inputs = memory.inputs();
    flce::Outputs outputs = memory.outputs();
    spoil(inputs, outputs);
    try {
      flce::problem_of(inputs, outputs, {});
    } catch (const flce::Error& error) {
      EXPECT_EQ(error.code(), flce::ErrorCode::kInvalidArgument);
      return std::string(error.what());
    }
    return std::string("accepted");
  };
  const auto expect_words = [](const std::string& text, std::initializer_list<const char*> words) {
    for (const char* word : words) EXPECT_NE(text.find(word), std::string::npos) << text;
  };
  expect_words(text_of([](auto& in, auto& out) { in.weight.rows = out.grad_weight.rows = 0; }),
               {"weight", "0", "4"});
  expect_words(text_of([](auto& in, auto&) { in.weight.cols = 3; }), {"weight", "3", "4"});
  expect_words(text_of([](auto& in, auto&) { in.target.size = 3; }), {"target", "3", "2"});
  expect_words(text_of([](auto& in, auto&) { in.hidden.cols = in.weight.cols = 0; }),
               {"hidden", "0"});
}

TEST(Cases, C009_UpstreamPerToken) {
  for_all([](Dtype dtype, Method method) {
    for (const std::int64_t chunk : {0, 1}) {
      Case c = head_case(dtype, 1, {1, 2}, {0, 0}, {0, 1});
      c.in.bias = {0, 0};
      c.in.reduction = Reduction::kNone;
      c.in.grad_output = {1, 3};
      c.wants.grad_bias = true;
      const Results results = run_with(c, method, chunk);
      EXPECT_TRUE(all_near(results.loss, {std::log(2.0), std::log(2.0)}, 1e-7));
      EXPECT_TRUE(all_near(results.grad_weight, {2.5, -2.5}, digits(dtype)));
      EXPECT_TRUE(all_near(results.grad_bias, {1, -1}, digits(dtype)));
    }
  });
}

TEST(Cases, C011_ReductionsAgreeWithEachOther) {
  for_all([](Dtype dtype, Method method) {
    Case c = basic_case({64, 8, 33}, dtype, 4);
    for (std::int64_t i = 0; i < 20; ++i) c.in.target[i * 3] = -100;
    const auto with = [&](Reduction reduction, Values upstream) {
      Case other = c;
      other.in.reduction = reduction;
      other.in.grad_output = std::move(upstream);
      return run_with(other, method, 24);
    };
    const double near = dtype == Dtype::kF64 ? 1e-14 : digits(dtype);
    const Results sum = with(Reduction::kSum, {});
    const Results none = with(Reduction::kNone, {});
    EXPECT_TRUE(all_near(none.grad_hidden, sum.grad_hidden, near));
    EXPECT_TRUE(all_near(none.grad_weight, sum.grad_weight, near));
    EXPECT_NEAR(total(none.loss), sum.loss[0], std::max(near, 1e-6) * sum.loss[0]);
    const Results mean = with(Reduction::kMean, {});
    const Results scaled = with(Reduction::kNone, Values(64, round_to(dtype, 1.0 / 44)));
    EXPECT_TRUE(all_near(scaled.grad_hidden, mean.grad_hidden, near));
    EXPECT_TRUE(all_near(scaled.grad_weight, mean.grad_weight, near));
    EXPECT_NEAR(mean.loss[0], sum.loss[0] / 44, std::max(near, 1e-6) * mean.loss[0]);
  });
}

TEST(Cases, C012_UnreducedLossIsAVector) {
  for_all([](Dtype dtype, Method method) {
    Case c = basic_case({12, 4, 9}, dtype, 5);
    c.in.reduction = Reduction::kNone;
    c.in.target[0] = c.in.target[7] = -100;
    const Results results = run_with(c, method, 5);
    ASSERT_EQ(results.loss.size(), 12U);
    for (std::int64_t i = 0; i < 12; ++i) EXPECT_EQ(results.loss[i] == 0.0, i == 0 || i == 7) << i;
  });
}

Case four_tokens(Dtype dtype) { return head_case(dtype, 1, Values(4, 1.0), {2, 0}, {0, 1, 1, 1}); }

TEST(Cases, C014_ChunkResultsCombined) {
  for_all([](Dtype dtype, Method method) {
    // 4, 2 and 1 rows are also what 1 to 8 chunks of four tokens come to.
    for (const std::int64_t chunk : {1, 2, 3, 4, 5, 1024}) {
      Case c = four_tokens(dtype);
      const Results mean = run_with(c, method, chunk);
      EXPECT_TRUE(all_near(mean.loss, {1.6269280}, 1e-6));
      EXPECT_TRUE(all_near(mean.grad_weight, {0.6307971, -0.6307971}, digits(dtype)));
      c.in.reduction = Reduction::kNone;
      EXPECT_TRUE(all_near(run_with(c, method, chunk).loss,
                           {0.1269280, 2.1269280, 2.1269280, 2.1269280}, 1e-6));
    }
  });
}

TEST(Cases, C016_LastChunkIsShorter) {
  struct Cut {
    std::int64_t tokens;
    std::int64_t chunk;
  };
  for_all([](Dtype dtype, Method method) {
    for (const Cut cut : {Cut{1334, 84}, Cut{1021, 256}, Cut{257, 256}, Cut{5, 4}}) {
      const Case c = basic_case({cut.tokens, 16, 40}, dtype, 6);
      const Results whole = run_with(c, method, cut.tokens);
      const Results pieces = run_with(c, method, cut.chunk);
      const double near = digits(dtype);
      EXPECT_TRUE(all_near(pieces.loss, whole.loss, 1e-6));
      EXPECT_LE(relative_error(pieces.grad_hidden, whole.grad_hidden), near);
      EXPECT_LE(relative_error(pieces.grad_weight, whole.grad_weight), near);
      const Values last(pieces.grad_hidden.end() - 16, pieces.grad_hidden.end());
      EXPECT_GT(magnitude(last), 0.0);
    }
  });
}

TEST(Cases, C017_NormalizerAcrossMicroBatches) {
  for_all([](Dtype dtype, Method method) {
    Case first = head_case(dtype, 1, {1}, {2, 0}, {0});
    Case second = head_case(dtype, 1, {1, 1, 1}, {2, 0}, {1, 1, 1});
    for (Case* c : {&first, &second}) {
      c->in.reduction = Reduction::kSum;
      c->in.has_normalizer = true;
      c->in.normalizer = 4;
    }
    const Results one = run_with(first, method);
    second.grad_weight_start = one.grad_weight;
    const Results two = run_with(second, method);
    EXPECT_NEAR(one.loss[0] + two.loss[0], 1.6269280, 1e-6);
    EXPECT_TRUE(all_near(two.grad_weight, {0.6307971, -0.6307971}, digits(dtype)));
  });
}

TEST(Cases, C019_NormalizerFromTheHostOrFromMemory) {
  for_all([](Dtype dtype, Method method) {
    Case c = four_tokens(dtype);
    c.in.reduction = Reduction::kSum;
    c.in.has_normalizer = true;
    c.in.normalizer = 4;
    const Results host = run_with(c, method);
    EXPECT_TRUE(all_near(host.loss, {1.6269280}, 1e-6));
    for (const Dtype type : {Dtype::kF64, Dtype::kF32, Dtype::kI64, Dtype::kI32}) {
      c.normalizer_dtype = type;
      EXPECT_EQ(first_difference(run_with(c, method), host), "") << flce::name_of(type);
    }
  });
}

TEST(Cases, C021_AnySplitOfABatchGivesItsMean) {
  for_all({Dtype::kF64}, [](Dtype dtype, Method method) {
    Case whole = basic_case({50, 6, 21}, dtype, 7);
    Rng rng(8);
    ignore_some(whole, 0.3, rng);
    const Results mean = run_with(whole, method);
    const double count = oracle::evaluate(whole.in).divisor;
    for (int trial = 0; trial < 5; ++trial) {
      double loss = 0.0;
      Values grad_weight(21 * 6, 0.0);
      for (std::int64_t begin = 0; begin < 50;) {
        const std::int64_t end = std::min<std::int64_t>(50, begin + 1 + rng.index(20));
        Case part = head_case(
            dtype, 6, Values(whole.in.x.begin() + begin * 6, whole.in.x.begin() + end * 6),
            whole.in.w, Integers(whole.in.target.begin() + begin, whole.in.target.begin() + end));
        part.in.reduction = Reduction::kSum;
        part.in.has_normalizer = true;
        part.in.normalizer = count;
        part.grad_weight_start = grad_weight;
        const Results results = run_with(part, method);
        loss += results.loss[0];
        grad_weight = results.grad_weight;
        begin = end;
      }
      EXPECT_NEAR(loss, mean.loss[0], 1e-12);
      EXPECT_LE(relative_error(grad_weight, mean.grad_weight), 1e-12);
    }
  });
}

}  // namespace
}  // namespace flce_test
