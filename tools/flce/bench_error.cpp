// SPDX-License-Identifier: Apache-2.0
#include "bench_error.hpp"

#include <algorithm>
#include <cmath>
#include <utility>

#include "oracle/oracle.hpp"
#include "verify_compare.hpp"
#include "verify_numbers.hpp"

namespace flce::cli {
namespace {

// Some twenty nanoseconds for each (token, class, hidden) triple: two seconds.
constexpr std::int64_t kMaxTriples = 100'000'000;
// The oracle keeps some five copies of the head in f64: at most 2 GB.
constexpr std::int64_t kMaxHead = 70'000'000;
constexpr std::int64_t kMinSample = 2;

std::vector<double> rows_of(const std::vector<double>& all, const std::vector<std::int64_t>& rows,
                            std::int64_t width) {
  std::vector<double> some;
  if (all.empty()) return some;
  for (const std::int64_t row : rows) {
    some.insert(some.end(), all.begin() + row * width, all.begin() + (row + 1) * width);
  }
  return some;
}

std::vector<double> some_of(const std::vector<double>& all, const std::vector<std::int64_t>& rows) {
  return all.size() <= 1 ? all : rows_of(all, rows, 1);
}

// The problem of the sampled tokens alone, whose results are the whole problem's.
oracle::Input sampled_input(const Problem& problem, const ProblemData& data,
                            const std::vector<std::int64_t>& sample,
                            const std::vector<std::int64_t>& targets) {
  oracle::Input in = oracle_input(problem, data);
  in.tokens = static_cast<std::int64_t>(sample.size());
  in.x = rows_of(in.x, sample, in.hidden);
  in.token_weight = rows_of(in.token_weight, sample, 1);
  in.temperature_per_token = rows_of(in.temperature_per_token, sample, 1);
  in.grad_output = some_of(in.grad_output, sample);
  in.grad_entropy = rows_of(in.grad_entropy, sample, 1);
  in.target.clear();
  for (const std::int64_t token : sample) in.target.push_back(targets[token]);
  in.shift = 0;
  in.sequence_length = 0;
  in.topk = 0;
  return in;
}

std::vector<double> row_numbers(const MatrixView& view, const std::vector<std::int64_t>& rows) {
  std::vector<double> numbers;
  for (const std::int64_t row : rows) {
    for (std::int64_t k = 0; k < view.cols; ++k) {
      numbers.push_back(load_number(view.dtype, view.data, row * view.row_stride + k));
    }
  }
  return numbers;
}

double relative_error(const std::vector<double>& got, const std::vector<double>& want) {
  double error = 0.0;
  double size = 0.0;
  for (std::size_t i = 0; i < got.size(); ++i) {
    error += (got[i] - want[i]) * (got[i] - want[i]);
    size += want[i] * want[i];
  }
  return error == 0.0 ? 0.0 : std::sqrt(error / size);
}

// Without a copy of the head in f64.
double weight_error(const MatrixView& got, const std::vector<double>& want,
                    const std::vector<double>& start) {
  double error = 0.0;
  double size = 0.0;
  for (std::int64_t i = 0; i < got.rows * got.cols; ++i) {
    const double right = want[i] + (start.empty() ? 0.0 : start[i]);
    const double difference = load_number(got.dtype, got.data, i) - right;
    error += difference * difference;
    size += right * right;
  }
  return error == 0.0 ? 0.0 : std::sqrt(error / size);
}

}  // namespace

struct ErrorProbe::State {
  Problem problem;
  ProblemData& data;
  std::vector<double> targets;       // as they were
  std::vector<std::int64_t> sample;  // tokens with a target that still count
  oracle::Result right;
  std::vector<double> grad_weight_start;
};

ErrorProbe::ErrorProbe(const Problem& problem, ProblemData& data)
    : state_(new State{problem, data, data.values("target"), {}, {}, {}}) {
  const std::int64_t head = problem.vocab * problem.hidden;
  if (head == 0 || head > kMaxHead) return;
  const std::vector<std::int64_t> targets = data.resolved_targets();
  std::vector<std::int64_t> valid;
  for (std::int64_t i = 0; i < problem.tokens; ++i) {
    if (targets[i] >= 0) valid.push_back(i);
  }
  const auto count = static_cast<std::int64_t>(valid.size());
  const std::int64_t wanted = std::min(count, std::max(kMaxTriples / head, kMinSample));
  if (wanted == 0) return;
  for (std::int64_t i = 0; i < wanted; ++i) {
    state_->sample.push_back(valid[(2 * i + 1) * count / (2 * wanted)]);
  }
  std::vector<double> kept(state_->targets.size(),
                           static_cast<double>(problem.options.ignore_index));
  for (const std::int64_t token : state_->sample) {
    kept[token + problem.options.shift] = static_cast<double>(targets[token]);
  }
  data.set_targets(kept);
  state_->right = oracle::evaluate(sampled_input(problem, data, state_->sample, targets));
  state_->grad_weight_start = data.values("grad_weight_start");
}

ErrorProbe::~ErrorProbe() { state_->data.set_targets(state_->targets); }

std::int64_t ErrorProbe::sampled_tokens() const noexcept {
  return static_cast<std::int64_t>(state_->sample.size());
}

Errors ErrorProbe::errors_of(const Outputs& outputs) const {
  Errors errors;
  if (state_->sample.empty()) return errors;
  const oracle::Result& right = state_->right;
  const bool reduced = state_->problem.options.reduction != Reduction::kNone;
  errors.loss = 0.0;
  for (std::size_t i = 0; i < right.loss.size(); ++i) {
    const std::int64_t at = reduced ? 0 : state_->sample[i];
    const double got = load_number(outputs.loss.dtype, outputs.loss.data, at);
    if (got == right.loss[i]) continue;
    errors.loss = std::max(errors.loss, std::abs(got - right.loss[i]) / std::abs(right.loss[i]));
  }
  if (outputs.grad_hidden) {
    errors.grad_hidden =
        relative_error(row_numbers(outputs.grad_hidden, state_->sample), right.grad_hidden);
  }
  if (outputs.grad_weight) {
    errors.grad_weight =
        weight_error(outputs.grad_weight, right.grad_weight, state_->grad_weight_start);
  }
  return errors;
}

}  // namespace flce::cli
