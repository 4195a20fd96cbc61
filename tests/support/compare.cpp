// SPDX-License-Identifier: Apache-2.0
#include "support/compare.hpp"

#include <algorithm>
#include <cmath>
#include <limits>
#include <set>

#include "oracle/formats.hpp"
#include "support/device.hpp"
#include "support/storage.hpp"

namespace flce_test {
namespace {

using flce::Dtype;

constexpr double kInfinity = std::numeric_limits<double>::infinity();

bool same_special(double a, double b) {
  if (std::isnan(a) || std::isnan(b)) return std::isnan(a) && std::isnan(b);
  return a == b;
}

Dtype real_of(Dtype dtype) { return dtype == Dtype::kF64 ? Dtype::kF64 : Dtype::kF32; }

// What rounding the operands of a gradient product to the input type may cost: each entry of the
// logit gradient once, and each of the packed operand that it meets. bf16 on the CPU, and both
// 16-bit types on a card.
double operand_roundoff(Dtype dtype) {
  const bool narrow = dtype == Dtype::kBF16 || dtype == Dtype::kF16;
  return narrow ? oracle::unit_roundoff(format_of(dtype)) : 0.0;
}

// Of a logit, per unit of the terms' sizes. The sum over H is in f32 (f64 for f64) everywhere; the
// tensor cores that make it from 16-bit operands cut the sum off, not round it, after each 16
// terms.
double terms_roundoff(const Case& c, double eps) {
  const bool is_cut = on_cuda() && operand_roundoff(c.dtype) > 0;
  return eps * (is_cut ? 4 + static_cast<double>(c.in.hidden) / 16 : 4.0);
}

double output_rounding(Dtype dtype, const std::vector<double>& want) {
  const oracle::Format format = format_of(dtype);
  return oracle::unit_roundoff(format) * norm(want) +
         oracle::smallest_step(format) * std::sqrt(static_cast<double>(want.size()));
}

std::vector<double> added(const std::vector<double>& start, const std::vector<double>& more) {
  if (start.empty()) return more;
  std::vector<double> sum = more;
  for (std::size_t i = 0; i < sum.size(); ++i) sum[i] += start[i];
  return sum;
}

// A number that the output's type is too narrow for is infinite, and right so.
bool overflows(Dtype dtype, double got, double want, double bound) {
  return std::isinf(got) && std::isfinite(want) && std::signbit(got) == std::signbit(want) &&
         std::isinf(round_to(dtype, std::abs(want) + bound));
}

void expect_within(const char* name, Dtype dtype, const std::vector<double>& got,
                   std::vector<double> want, double bound, const std::string& text) {
  for (std::size_t i = 0; i < std::min(got.size(), want.size()); ++i) {
    if (overflows(dtype, got[i], want[i], bound)) want[i] = got[i];
  }
  const double error = absolute_error(got, want);
  EXPECT_LE(error, bound) << name << ": error " << error << " of norm " << norm(want) << ", bound "
                          << bound << "\n"
                          << text;
}

// Per-token values: `bound(i)` each, exactly 0 where the oracle has no target.
template <typename Bound>
void expect_tokens(const char* name, const std::vector<double>& got,
                   const std::vector<double>& want, Bound bound, const std::string& text) {
  ASSERT_EQ(got.size(), want.size()) << name << "\n" << text;
  for (std::size_t i = 0; i < got.size(); ++i) {
    if (same_special(got[i], want[i])) continue;
    const double error = std::isfinite(want[i]) ? std::abs(got[i] - want[i]) : kInfinity;
    const double limit = std::isfinite(want[i]) ? bound(i) : 0.0;
    EXPECT_LE(error, limit) << name << "[" << i << "] is " << got[i] << ", not " << want[i] << "\n"
                            << text;
    if (!(error <= limit)) return;
  }
}

struct Judge {
  const Case& c;
  const oracle::Result& want;
  const Results& got;
  const std::string& text;
  Tolerance tolerance;
  double eps = 0.0;
  std::vector<std::int64_t> targets;

  bool valid(std::size_t token) const { return targets[token] >= 0; }
  // The bound of a per-token value of this size and slope in the logits.
  double bound(std::size_t token, double value, double slope) const {
    return valid(token) ? slope * tolerance.token + 4 * eps * std::abs(value) : 0.0;
  }
  void losses() const;
  void token_outputs() const;
  void ranks() const;
  void topk() const;
  void gradients() const;
};

void Judge::losses() const {
  const auto& sizes = want.conditioning.loss;
  const auto reduced = [&](const std::vector<double>& value, std::size_t i) {
    if (c.in.reduction == oracle::Reduction::kNone) return bound(i, value[i], sizes[i]);
    const double divisor = std::abs(want.divisor) > 0 ? std::abs(want.divisor) : 1.0;
    double sum = 0.0;
    for (std::size_t t = 0; t < sizes.size(); ++t) {
      sum += bound(t, want.token_loss[t], sizes[t]) / divisor;
    }
    return sum + 4 * eps * std::abs(value[i]);
  };
  expect_tokens(
      "loss", got.loss, want.loss, [&](std::size_t i) { return reduced(want.loss, i); }, text);
  if (c.wants.z_loss) {
    expect_tokens(
        "z_loss", got.z_loss, want.z_loss, [&](std::size_t i) { return reduced(want.z_loss, i); },
        text);
  }
}

void Judge::token_outputs() const {
  const auto check = [&](const char* name, const std::vector<double>& mine,
                         const std::vector<double>& right) {
    expect_tokens(
        name, mine, right, [&](std::size_t i) { return bound(i, right[i], 1.0); }, text);
  };
  if (c.wants.lse) check("lse", got.lse, want.lse);
  if (c.wants.logprob) check("logprob", got.logprob, want.logprob);
  if (c.wants.entropy) {
    expect_tokens(
        "entropy", got.entropy, want.entropy,
        [&](std::size_t i) { return bound(i, want.entropy[i], 1.0 + want.entropy[i]); }, text);
  }
}

// The largest logit, where rounding leaves a choice: any that is as large up to the tolerance.
void Judge::ranks() const {
  std::int64_t unsure = 0;
  const std::int64_t vocab = c.in.vocab;
  for (std::size_t i = 0; i < targets.size(); ++i) {
    const double* logprobs = want.logprobs.data() + static_cast<std::int64_t>(i) * vocab;
    const double best = logprobs[want.argmax[i]];
    const auto close = [&](double value) { return value >= best - 2 * tolerance.token; };
    if (valid(i) && std::count_if(logprobs, logprobs + vocab, close) > 1) ++unsure;
    if (!c.wants.argmax) continue;
    const std::int64_t index = got.argmax[i];
    if (!valid(i)) {
      EXPECT_EQ(index, 0) << "argmax of ignored token " << i << "\n" << text;
    } else {
      ASSERT_TRUE(index >= 0 && index < vocab) << "argmax[" << i << "] is " << index << "\n"
                                               << text;
      EXPECT_TRUE(close(logprobs[index]))
          << "argmax[" << i << "] is " << index << ", not " << want.argmax[i] << "\n"
          << text;
    }
  }
  if (c.wants.num_valid) {
    EXPECT_EQ(got.num_valid, std::vector<std::int64_t>{want.num_valid}) << text;
  }
  if (c.wants.num_correct) {
    ASSERT_EQ(got.num_correct.size(), 1U) << text;
    EXPECT_LE(std::abs(got.num_correct[0] - want.num_correct), unsure) << text;
  }
}

void Judge::topk() const {
  const std::int64_t k = c.wants.topk;
  if (k == 0) return;
  const auto token_of = [&](std::size_t at) { return at / static_cast<std::size_t>(k); };
  expect_tokens(
      "topk_logprob", got.topk_logprob, want.topk_logprob,
      [&](std::size_t at) { return bound(token_of(at), want.topk_logprob[at], 1.0); }, text);
  for (std::size_t i = 0; i < targets.size(); ++i) {
    std::set<std::int64_t> seen;
    for (std::int64_t r = 0; r < k; ++r) {
      const std::size_t at = i * static_cast<std::size_t>(k) + static_cast<std::size_t>(r);
      const std::int64_t index = got.topk_index[at];
      if (!valid(i)) {
        EXPECT_EQ(index, 0) << "topk_index of ignored token " << i << "\n" << text;
        continue;
      }
      ASSERT_TRUE(index >= 0 && index < c.in.vocab) << "topk_index " << index << "\n" << text;
      EXPECT_TRUE(seen.insert(index).second) << "topk_index twice: " << index << "\n" << text;
      const double logprob = want.logprobs[static_cast<std::int64_t>(i) * c.in.vocab + index];
      EXPECT_NEAR(logprob, want.topk_logprob[at], 2 * bound(i, logprob, 1.0))
          << "topk_index[" << i << "," << r << "] is " << index << "\n"
          << text;
    }
  }
}

void Judge::gradients() const {
  if (c.wants.grad_hidden) {
    expect_within("grad_hidden", c.dtype, got.grad_hidden, want.grad_hidden, tolerance.grad_hidden,
                  text);
    for (std::size_t at = 0; at < got.grad_hidden.size(); ++at) {
      if (valid(at / static_cast<std::size_t>(c.in.hidden))) continue;
      ASSERT_EQ(got.grad_hidden[at], 0.0) << "grad_hidden at an ignored token\n" << text;
    }
  }
  if (c.wants.grad_weight) {
    expect_within("grad_weight", c.grad_weight_type(), got.grad_weight,
                  added(c.grad_weight_start, want.grad_weight), tolerance.grad_weight, text);
  }
  if (c.wants.grad_bias) {
    expect_within("grad_bias", c.grad_bias_type(), got.grad_bias,
                  added(c.grad_bias_start, want.grad_bias), tolerance.grad_bias, text);
  }
}

}  // namespace

double norm(const std::vector<double>& values) {
  double sum = 0.0;
  for (const double value : values) {
    if (std::isfinite(value)) sum += value * value;
  }
  return std::sqrt(sum);
}

double absolute_error(const std::vector<double>& got, const std::vector<double>& want) {
  if (got.size() != want.size()) return kInfinity;
  double sum = 0.0;
  for (std::size_t i = 0; i < got.size(); ++i) {
    if (same_special(got[i], want[i])) continue;
    if (!std::isfinite(got[i]) || !std::isfinite(want[i])) return kInfinity;
    sum += (got[i] - want[i]) * (got[i] - want[i]);
  }
  return std::sqrt(sum);
}

double relative_error(const std::vector<double>& got, const std::vector<double>& want) {
  const double error = absolute_error(got, want);
  return error == 0.0 ? 0.0 : error / norm(want);
}

testing::AssertionResult all_near(const std::vector<double>& got, const std::vector<double>& want,
                                  double tolerance) {
  if (got.size() != want.size()) {
    return testing::AssertionFailure() << got.size() << " values, not " << want.size();
  }
  for (std::size_t i = 0; i < got.size(); ++i) {
    if (same_special(got[i], want[i])) continue;
    const double bound = tolerance * std::max(1.0, std::abs(want[i]));
    if (!(std::abs(got[i] - want[i]) <= bound)) {
      return testing::AssertionFailure() << "[" << i << "] is " << testing::PrintToString(got[i])
                                         << ", not " << testing::PrintToString(want[i]);
    }
  }
  return testing::AssertionSuccess();
}

testing::AssertionResult all_zero(const std::vector<double>& values) {
  return all_near(values, std::vector<double>(values.size(), 0.0), 0.0);
}

// What f16's smallest step costs on a card, for each logit's gradient: gradients are stored times a
// power of two that brings the largest possible one near f16's largest number
// (src/kernels/portable, gradient_scale), or 2^8 below that where there is a z-loss.
double f16_step(const Case& c, const oracle::Result& want) {
  if (!on_cuda() || c.dtype != Dtype::kF16) return 0.0;
  const auto largest = [](const std::vector<double>& values, double otherwise) {
    double most = values.empty() ? otherwise : 0.0;
    for (const double value : values) {
      if (std::isfinite(value)) most = std::max(most, std::abs(value));
    }
    return most;
  };
  const double divisor = std::abs(want.divisor) > 0 ? std::abs(want.divisor) : 1.0;
  const double loss = largest(c.in.grad_output, 1.0) * largest(c.in.token_weight, 1.0) *
                      largest(c.in.class_weight, 1.0) / divisor;
  const double size = (2 * loss + 16 * largest(c.in.grad_entropy, 0.0)) /
                      (c.in.temperature_per_token.empty() ? c.in.temperature : 0.25);
  return size * (c.in.z_loss != 0.0 ? 0x1p-30 : 0x1p-36);
}

Tolerance tolerance_of(const Case& c, const oracle::Result& want) {
  const oracle::Conditioning& size = want.conditioning;
  const double eps = oracle::unit_roundoff(format_of(real_of(c.dtype)));
  const double cap = c.dtype == Dtype::kF64 ? 4e-15 : 2e-6;  // of tanh
  const double temperature =
      c.in.temperature_per_token.empty() ? c.in.temperature : 0.25;  // the generator's smallest
  const double logit = terms_roundoff(c, eps) * (size.logit + 4) + cap * c.in.softcap / temperature;
  Tolerance tolerance;
  tolerance.token = 2 * logit + 16 * eps;
  const double products = tolerance.token + 1.5 * operand_roundoff(c.dtype) + 16 * eps;
  const auto bound = [&](double capped, double uncapped, Dtype dtype,
                         const std::vector<double>& value) {
    // The last term: what is accumulated into is rounded anew with each chunk, a random walk.
    return products * capped + 2 * cap * uncapped + 1.01 * output_rounding(dtype, value) +
           8 * eps * norm(value);
  };
  tolerance.grad_hidden =
      bound(size.grad_hidden, size.grad_hidden_uncapped, c.dtype, want.grad_hidden);
  tolerance.grad_weight = bound(size.grad_weight, size.grad_weight_uncapped, c.grad_weight_type(),
                                added(c.grad_weight_start, want.grad_weight));
  tolerance.grad_bias = bound(size.grad_bias, size.grad_bias_uncapped, c.grad_bias_type(),
                              added(c.grad_bias_start, want.grad_bias));
  const double step = f16_step(c, want);
  const double logits = std::sqrt(static_cast<double>(c.in.tokens * c.in.vocab));
  tolerance.grad_hidden += step * logits * norm(c.in.w);
  tolerance.grad_weight += step * logits * norm(c.in.x);
  tolerance.grad_bias += step * logits * std::sqrt(static_cast<double>(c.in.tokens));
  return tolerance;
}

void expect_matches(const Case& c, const oracle::Result& want, const Results& got,
                    const std::string& description) {
  const Judge judge{c,
                    want,
                    got,
                    description,
                    tolerance_of(c, want),
                    oracle::unit_roundoff(format_of(real_of(c.dtype))),
                    oracle::resolved_targets(c.in)};
  judge.losses();
  judge.token_outputs();
  judge.ranks();
  judge.topk();
  judge.gradients();
}

void check_case(const Case& c, const oracle::Result& want, const RunConfig& config) {
  if (may_refuse(c, config)) {
    const auto reason = refusal(c, config);
    if (reason.has_value()) {
      EXPECT_GT(reason->size(), 20U) << describe(c, config);
      return;
    }
  }
  const Outcome outcome = run_case(c, config);
  expect_matches(c, want, outcome.results, describe(c, config));
}

}  // namespace flce_test
