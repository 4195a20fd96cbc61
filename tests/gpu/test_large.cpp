// SPDX-License-Identifier: Apache-2.0
// Sizes that only a card has the room and the time for: more than 2^31 and 2^32 logits, rows more
// than 2^31 elements apart. Sampled rows against the same rows in float64 on the host. Where the
// memory is too small the test says so and is skipped.
#include <gtest/gtest.h>

#include <cmath>
#include <functional>

#include "cases/case_support.hpp"
#include "flce/device.hpp"
#include "support/mirrors.hpp"

namespace flce_test {
namespace {

using flce::Dtype;
using flce::Method;

// The planner says so, or the card when it is asked for memory.
bool lacks_room(const flce::Error& error) {
  return error.code() == flce::ErrorCode::kOutOfBudget ||
         error.code() == flce::ErrorCode::kOutOfMemory;
}

// The reason why the card has no room for the case, or an empty text.
std::string no_room_for(const std::function<void()>& work) {
  try {
    work();
  } catch (const flce::Error& error) {
    if (!lacks_room(error)) throw;
    return error.what();
  }
  return {};
}

double dot(const Case& c, std::int64_t token, std::int64_t row) {
  double sum = 0.0;
  for (std::int64_t k = 0; k < c.in.hidden; ++k) {
    sum += c.in.x[token * c.in.hidden + k] * c.in.w[row * c.in.hidden + k];
  }
  return sum;
}

struct Row {
  double lse = 0.0;
  double loss = 0.0;
  std::vector<double> grad_hidden;
};

// One token in float64. Two passes over its logits.
Row exact_row(const Case& c, std::int64_t token) {
  const std::int64_t hidden = c.in.hidden;
  std::vector<double> z(static_cast<std::size_t>(c.in.vocab));
  double max = -kInfinity;
  for (std::int64_t j = 0; j < c.in.vocab; ++j) max = std::max(max, z[j] = dot(c, token, j));
  double sum = 0.0;
  for (const double value : z) sum += std::exp(value - max);
  Row row;
  row.lse = max + std::log(sum);
  row.loss = row.lse - z[c.in.target[token]];
  row.grad_hidden.assign(static_cast<std::size_t>(hidden), 0.0);
  for (std::int64_t j = 0; j < c.in.vocab; ++j) {
    const double share = std::exp(z[j] - row.lse) - (j == c.in.target[token] ? 1.0 : 0.0);
    for (std::int64_t k = 0; k < hidden; ++k) row.grad_hidden[k] += share * c.in.w[j * hidden + k];
  }
  return row;
}

// One row of grad_weight in float64, from the log-sum-exps of all tokens.
Values exact_grad_weight_row(const Case& c, const Values& lse, std::int64_t row) {
  Values sum(static_cast<std::size_t>(c.in.hidden), 0.0);
  for (std::int64_t i = 0; i < c.in.tokens; ++i) {
    const double share = std::exp(dot(c, i, row) - lse[i]) - (c.in.target[i] == row ? 1.0 : 0.0);
    for (std::int64_t k = 0; k < c.in.hidden; ++k) {
      sum[k] += share * c.in.x[i * c.in.hidden + k];
    }
  }
  return sum;
}

Values part(const Values& all, std::int64_t row, std::int64_t cols) {
  return {all.begin() + row * cols, all.begin() + (row + 1) * cols};
}

void expect_columns_vanish(const Case& c, const Values& grad_weight) {
  for (std::int64_t k = 0; k < c.in.hidden; ++k) {
    Values column(static_cast<std::size_t>(c.in.vocab));
    for (std::int64_t j = 0; j < c.in.vocab; ++j) column[j] = grad_weight[j * c.in.hidden + k];
    expect_no_total(column);
  }
}

class GpuLarge : public testing::TestWithParam<Method> {};

TEST_P(GpuLarge, MoreThan2To31Logits) {
  Case c = basic_case({20000, 64, 128256}, Dtype::kBF16, 90);
  c.in.reduction = oracle::Reduction::kNone;
  c.wants.lse = true;
  Results got;
  const std::string reason = no_room_for([&] { got = run_case(c, {GetParam(), 0}).results; });
  if (!reason.empty()) GTEST_SKIP() << reason;
  constexpr double kUnit = 0x1p-8;  // twice bf16's unit roundoff
  for (const std::int64_t i : {0, 1, 4095, 4096, 16383, 16384, 16743, 16744, 19998, 19999}) {
    const Row want = exact_row(c, i);
    EXPECT_NEAR(got.loss[i], want.loss, 1e-5 * want.loss) << i;
    EXPECT_NEAR(got.lse[i], want.lse, 1e-5 * want.lse) << i;
    EXPECT_LE(relative_error(part(got.grad_hidden, i, 64), want.grad_hidden), kUnit) << i;
  }
  for (const std::int64_t j : {std::int64_t{0}, std::int64_t{65535}, std::int64_t{107374},
                               c.in.target[16744], c.in.target[19999], std::int64_t{128255}}) {
    const Values want = exact_grad_weight_row(c, got.lse, j);
    EXPECT_LE(relative_error(part(got.grad_weight, j, 64), want), 2 * kUnit) << j;
  }
  expect_columns_vanish(c, got.grad_weight);
}

// The whole in one chunk, just over 2^31 and 2^32 logits, against chunks of 1024.
TEST_P(GpuLarge, C057_OneChunkOfMoreThan2To32Logits) {
  for (const std::int64_t tokens : {16385, 32769}) {
    Case c = basic_case({tokens, 8, 131072}, Dtype::kBF16, 91);
    c.in.reduction = oracle::Reduction::kNone;
    Results whole;
    const std::string reason = no_room_for([&] {
      whole = run_case(c, {GetParam(), tokens}).results;
    });
    if (!reason.empty()) GTEST_SKIP() << reason;
    const Results pieces = run_case(c, {Method::kFused, 1024}).results;
    EXPECT_LE(relative_error(whole.loss, pieces.loss), 1e-5) << tokens;
    EXPECT_LE(relative_error(whole.grad_hidden, pieces.grad_hidden), 4e-3) << tokens;
    EXPECT_LE(relative_error(whole.grad_weight, pieces.grad_weight), 4e-3) << tokens;
    const auto last = [&](const Values& all) { return Values(all.end() - 16 * 8, all.end()); };
    EXPECT_LE(relative_error(last(whole.grad_hidden), last(pieces.grad_hidden)), 4e-3) << tokens;
    const Row want = exact_row(c, tokens - 1);
    EXPECT_NEAR(whole.loss[tokens - 1], want.loss, 1e-5 * want.loss) << tokens;
  }
}

// Lengths of which cuBLASLt, where it splits a sum, has lost the last term.
TEST(GpuLargeCases, SumsOverTokensOfAnyNumberAreWhole) {
  for (const std::int64_t tokens : {4097, 8193, 12289, 12290, 14337, 16386, 20481}) {
    for (const std::int64_t hidden : {8, 64}) {
      Case c = basic_case({tokens, hidden, 8192}, Dtype::kBF16, 92);
      c.in.reduction = oracle::Reduction::kNone;
      const Results whole = run_case(c, {Method::kFused, tokens}).results;
      const Results pieces = run_case(c, {Method::kFused, 1024}).results;
      EXPECT_LE(relative_error(whole.grad_weight, pieces.grad_weight), 4e-3)
          << tokens << " tokens, hidden " << hidden;
    }
  }
}

std::string method_name(const testing::TestParamInfo<Method>& info) {
  return flce::name_of(info.param);
}
INSTANTIATE_TEST_SUITE_P(Gpu, GpuLarge, testing::ValuesIn(kMethods), method_name);

// The rows of a matrix on the card, 2^31 + 3 elements apart.
class SpreadRows {
 public:
  explicit SpreadRows(const flce::MatrixView& host) : view_(host) {
    const auto size = static_cast<std::uint64_t>(flce::size_of(host.dtype));
    view_.row_stride = (std::int64_t{1} << 31) + 3;
    memory_ = flce::DeviceMemory(
        (static_cast<std::uint64_t>((host.rows - 1) * view_.row_stride + host.cols)) * size);
    view_.data = memory_.data();
    each_row(host, [&](std::span<std::byte> row, std::uint64_t at) { memory_.upload(row, at); });
  }
  const flce::MatrixView& view() const { return view_; }

 private:
  template <typename Copy>
  void each_row(const flce::MatrixView& host, Copy copy) const {
    const auto size = flce::size_of(host.dtype);
    for (std::int64_t i = 0; i < host.rows; ++i) {
      copy(std::span(static_cast<std::byte*>(host.data) + i * host.row_stride * size,
                     static_cast<std::size_t>(host.cols * size)),
           static_cast<std::uint64_t>(i * view_.row_stride * size));
    }
  }

  flce::MatrixView view_;
  flce::DeviceMemory memory_;
};

enum class Spread { kHidden, kWeight, kGradHidden, kGradWeight };

// Runs a small case with the rows of one matrix spread.
void run_spread(Method method, Spread which) {
  const Case c = basic_case({3, 8, 3}, Dtype::kBF16, 29);
  const Results want = run_with(c, method, 2);
  const Memory memory(c);
  Mirrors mirrors;
  flce::Inputs inputs = memory.inputs();
  flce::Outputs outputs = memory.outputs();
  flce::MatrixView* const views[] = {&inputs.hidden, &inputs.weight, &outputs.grad_hidden,
                                     &outputs.grad_weight};
  flce::MatrixView& view = *views[static_cast<int>(which)];
  const flce::MatrixView host = view;
  const SpreadRows spread(host);
  view = {};
  inputs = mirrors.inputs(inputs);
  outputs = mirrors.outputs(outputs);
  view = spread.view();
  const flce::Plan plan =
      flce::plan(flce::problem_of(inputs, outputs, {}), caps_with(1),
                 {.method = method, .chunk = 2, .route = flce::Route::kPortable});
  const Block workspace(plan.workspace_bytes);
  flce::run(plan, inputs, outputs, mirrors.span(workspace.span()));
  flce::cuda_synchronize();
  mirrors.download();
  EXPECT_EQ(difference_of_calls(memory.results(), want, c.dtype), "");
}

TEST(GpuLargeCases, C057_HiddenRowsMoreThan2To31ElementsApart) {
  for (const Method method : kMethods) {
    SCOPED_TRACE(std::string(flce::name_of(method)));
    const std::string reason = no_room_for([&] { run_spread(method, Spread::kHidden); });
    if (!reason.empty()) GTEST_SKIP() << reason;
  }
}

TEST(GpuLargeCases, C057_OtherRowsThatFarApartAreRefusedByName) {
  for (const auto& [which, name] :
       {std::pair(Spread::kWeight, "weight"), std::pair(Spread::kGradHidden, "grad_hidden"),
        std::pair(Spread::kGradWeight, "grad_weight")}) {
    try {
      run_spread(Method::kFused, which);
      ADD_FAILURE() << name << " was accepted";
    } catch (const flce::Error& error) {
      if (lacks_room(error)) GTEST_SKIP() << error.what();
      EXPECT_EQ(error.code(), flce::ErrorCode::kUnsupported);
      EXPECT_EQ(std::string(error.what()).find(std::string(name) + " has row stride 2147483651"),
                0u)
          << error.what();
    }
  }
}

}  // namespace
}  // namespace flce_test
