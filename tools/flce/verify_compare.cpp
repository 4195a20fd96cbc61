// SPDX-License-Identifier: Apache-2.0
// How the limits are made. Let eps be the unit roundoff of the accumulation type (2^-24 for f32,
// bf16 and f16 problems, 2^-53 for f64) and M the largest sum of magnitudes |scale| * sum_k |x w| +
// |b| over all logits, divided by the temperature. Inputs are exact: the oracle reads the same
// rounded numbers as the library.
//
//   logits       differ by about eps * M; the largest of N * V such errors stays below
//                delta = 8 * eps * (1 + M) + 1e-6 * softcap / temperature (the library's tanh)
//   loss, -logprob   log1p(r) has relative error 2 * delta when both its logits err by delta,
//                also where r is tiny: errors are relative to each value, not to the largest
//   lse, entropy, top-k   absolute errors delta, 4 * delta and 2 * delta, relative where the value
//                exceeds 1
//   gradients    relative in the Frobenius norm: 1.05 times the error that the unfused
//                computation in the same element type makes on the same data, plus one rounding of
//                the output (2^-8 bf16, 2^-11 f16, 2^-24 f32). A second term covers small problems,
//                where either error is a few numbers' luck: eps * (16 + 2 M) times the norm of the
//                sums of magnitudes that the gradient is made of, over its own norm.
//   argmax, top-k indices   any class within 2 * delta of the best one
//   num_correct  exact but for tokens whose two best classes are that close
#include "verify_compare.hpp"

#include <algorithm>
#include <cmath>
#include <limits>
#include <set>
#include <utility>

#include "oracle/formats.hpp"
#include "oracle/unfused.hpp"
#include "verify_numbers.hpp"

namespace flce::cli {
namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();

oracle::Format format_of(Dtype dtype) {
  if (dtype == Dtype::kF64) return oracle::Format::kF64;
  if (dtype == Dtype::kBF16) return oracle::Format::kBF16;
  if (dtype == Dtype::kF16) return oracle::Format::kF16;
  return oracle::Format::kF32;
}

std::vector<double> numbers_of(const io::TensorView& tensor) {
  std::int64_t count = 1;
  for (const std::int64_t size : tensor.shape) count *= size;
  std::vector<double> numbers(static_cast<std::size_t>(count));
  for (std::int64_t i = 0; i < count; ++i) {
    numbers[i] = load_number(tensor.dtype, tensor.bytes.data(), i);
  }
  return numbers;
}

double norm(const std::vector<double>& values) {
  double sum = 0.0;
  for (const double value : values) {
    if (std::isfinite(value)) sum += value * value;
  }
  return std::sqrt(sum);
}

// |got - want|, 0 where both are NaN or the same infinity, infinite where only one is.
double distance(double got, double want) {
  if (std::isnan(got) && std::isnan(want)) return 0.0;
  if (got == want) return 0.0;
  const double error = std::abs(got - want);
  return std::isfinite(error) ? error : kInfinity;
}

double norm_error(const std::vector<double>& got, const std::vector<double>& want) {
  if (got.size() != want.size()) return kInfinity;
  double sum = 0.0;
  for (std::size_t i = 0; i < got.size(); ++i) {
    const double error = distance(got[i], want[i]);
    sum += error * error;
  }
  if (sum == 0.0) return 0.0;
  const double size = norm(want);
  return size > 0.0 ? std::sqrt(sum) / size : kInfinity;
}

// The largest error of an element, relative to it or to `floor` where it is smaller.
double element_error(const std::vector<double>& got, const std::vector<double>& want,
                     double floor) {
  if (got.size() != want.size()) return kInfinity;
  double worst = 0.0;
  for (std::size_t i = 0; i < got.size(); ++i) {
    const double error = distance(got[i], want[i]);
    if (error > 0.0) worst = std::max(worst, error / std::max(std::abs(want[i]), floor));
  }
  return worst;
}

oracle::Reduction reduction_of_oracle(Reduction reduction) {
  if (reduction == Reduction::kNone) return oracle::Reduction::kNone;
  return reduction == Reduction::kSum ? oracle::Reduction::kSum : oracle::Reduction::kMean;
}

struct GradientErrors {
  double hidden = 0.0;
  double weight = 0.0;
  double bias = 0.0;
};

// Relative errors of the unfused computation. It knows no upstream but 1, which a relative error
// hardly notices, so `exact` is evaluated anew where the problem has another one.
GradientErrors unfused_errors(oracle::Input input, const oracle::Result& exact, Dtype dtype) {
  if (dtype == Dtype::kF64) return {};
  const bool same = input.grad_output.empty() && input.grad_entropy.empty();
  input.grad_output.clear();
  input.grad_entropy.clear();
  const oracle::Result plain = same ? oracle::Result{} : oracle::evaluate(input);
  const oracle::Result& right = same ? exact : plain;
  // Rows without a target may hold NaN; the unfused products multiply them by 0.
  for (double& value : input.x) value = std::isfinite(value) ? value : 0.0;
  const oracle::Unfused unfused = oracle::unfused(input, format_of(dtype));
  const auto error = [](const std::vector<double>& got, const std::vector<double>& want) {
    const double relative = norm_error(got, want);
    return std::isfinite(relative) ? relative : 0.0;
  };
  // Products in a 16-bit type take rounded logit gradients; a bias gradient made on the way does
  // too.
  std::vector<double> rounded_bias(right.grad_bias.size(), 0.0);
  for (std::size_t i = 0; i < right.grad_logits.size(); ++i) {
    rounded_bias[i % rounded_bias.size()] +=
        oracle::round_to(format_of(dtype), right.grad_logits[i]);
  }
  return {
      error(unfused.grad_hidden, right.grad_hidden), error(unfused.grad_weight, right.grad_weight),
      std::max(error(unfused.grad_bias, right.grad_bias), error(rounded_bias, right.grad_bias))};
}

Dtype or_else(Dtype dtype, Dtype other) { return dtype == Dtype::kNone ? other : dtype; }

}  // namespace

oracle::Input oracle_input(const Problem& problem, const ProblemData& data) {
  const Options& options = problem.options;
  oracle::Input in;
  in.tokens = problem.tokens;
  in.hidden = problem.hidden;
  in.vocab = problem.vocab;
  in.x = data.values("hidden");
  in.w = data.values("weight");
  in.target = data.targets();
  in.bias = data.values("bias");
  in.class_weight = data.values("class_weight");
  in.token_weight = data.values("token_weight");
  in.temperature_per_token = data.values("temperature");
  in.grad_output = data.values("grad_output");
  in.grad_entropy = data.values("grad_entropy");
  in.reduction = reduction_of_oracle(options.reduction);
  in.ignore_index = options.ignore_index;
  in.smoothing = options.label_smoothing;
  in.z_loss = options.z_loss;
  in.softcap = options.softcap;
  in.scale = options.scale;
  in.temperature = options.temperature;
  const std::vector<double> normalizer = data.values("normalizer");
  in.has_normalizer = options.has_normalizer || !normalizer.empty();
  in.normalizer = normalizer.empty() ? options.normalizer : normalizer[0];
  in.shift = options.shift;
  in.sequence_length = options.sequence_length;
  in.topk = problem.wants.topk;
  return in;
}

Truth::Truth(const Problem& problem, const ProblemData& data)
    : problem_(problem), input_(oracle_input(problem, data)) {
  result_ = oracle::evaluate(input_);
  targets_ = oracle::resolved_targets(input_);
  epsilon_ = oracle::unit_roundoff(format_of(result_dtype(problem.dtype)));
  double temperature = problem.options.temperature;
  for (const double value : input_.temperature_per_token)
    temperature = std::min(temperature, value);
  const double tanh_error = problem.dtype == Dtype::kF64 ? 4e-15 : 1e-6;
  delta_ = 8 * epsilon_ * (1 + result_.conditioning.logit) +
           tanh_error * problem.options.softcap / temperature;
  const GradientErrors unfused = unfused_errors(input_, result_, problem.dtype);
  const oracle::Conditioning& size = result_.conditioning;
  const Wants& wants = problem.wants;
  if (wants.grad_hidden) {
    gradients_.push_back({"grad_hidden", result_.grad_hidden, size.grad_hidden,
                          size.grad_hidden_uncapped, unfused.hidden, problem.dtype});
  }
  if (wants.grad_weight) {
    gradients_.push_back({"grad_weight", result_.grad_weight, size.grad_weight,
                          size.grad_weight_uncapped, unfused.weight,
                          or_else(problem.grad_weight_dtype, problem.dtype)});
  }
  if (wants.grad_bias) {
    gradients_.push_back({"grad_bias", result_.grad_bias, size.grad_bias, size.grad_bias_uncapped,
                          unfused.bias, or_else(problem.grad_bias_dtype, problem.bias_dtype)});
  }
  for (Gradient& gradient : gradients_) {
    const std::vector<double> start = data.values(std::string(gradient.name) + "_start");
    for (std::size_t i = 0; i < start.size(); ++i) gradient.want[i] += start[i];
  }
}

Check Truth::compare_gradient(const Gradient& gradient, const std::vector<double>& got) const {
  const double size = norm(gradient.want);
  const double per_size = size > 0.0 ? 1.0 / size : 0.0;
  const oracle::Format format = format_of(gradient.dtype);
  const double rounding =
      oracle::unit_roundoff(format) +
      oracle::smallest_step(format) * std::sqrt(static_cast<double>(got.size())) * per_size;
  // In f64 the oracle's own products are in f64 too.
  const double oracle_share = problem_.dtype == Dtype::kF64 ? 4.0 : 1.0;
  const double luck = oracle_share * epsilon_ * (16 + 2 * result_.conditioning.logit) *
                      gradient.conditioning * per_size;
  const double cap = (16 * epsilon_ + 2 * std::max(0.0, delta_)) * gradient.uncapped * per_size;
  return {gradient.name, norm_error(got, gradient.want),
          1.05 * gradient.unfused + rounding + luck + (problem_.options.softcap > 0 ? cap : 0.0)};
}

bool Truth::is_ambiguous(std::int64_t token) const {
  const double* row = result_.logprobs.data() + token * input_.vocab;
  const double best = row[result_.argmax[token]];
  const auto close = [&](double value) { return value >= best - 2 * delta_; };
  return std::count_if(row, row + input_.vocab, close) > 1;
}

// The error of an index is how far its class lies below the best one.
Check Truth::compare_argmax(const std::vector<double>& got) const {
  double worst = 0.0;
  for (std::int64_t i = 0; i < input_.tokens; ++i) {
    const auto index = static_cast<std::int64_t>(got[i]);
    if (targets_[i] < 0) {
      worst = index == 0 ? worst : kInfinity;
    } else if (index < 0 || index >= input_.vocab) {
      worst = kInfinity;
    } else {
      const double* row = result_.logprobs.data() + i * input_.vocab;
      worst = std::max(worst, row[result_.argmax[i]] - row[index]);
    }
  }
  return {"argmax", worst, 2 * delta_};
}

Check Truth::compare_topk_index(const std::vector<double>& got) const {
  const std::int64_t k = input_.topk;
  double worst = 0.0;
  for (std::int64_t i = 0; i < input_.tokens; ++i) {
    std::set<std::int64_t> seen;
    for (std::int64_t rank = 0; rank < k; ++rank) {
      const auto index = static_cast<std::int64_t>(got[i * k + rank]);
      if (targets_[i] < 0) {
        worst = index == 0 ? worst : kInfinity;
      } else if (index < 0 || index >= input_.vocab || !seen.insert(index).second) {
        worst = kInfinity;
      } else {
        const double found = result_.logprobs[i * input_.vocab + index];
        worst = std::max(worst, distance(found, result_.topk_logprob[i * k + rank]));
      }
    }
  }
  return {"topk_index", worst, 2 * delta_};
}

Check Truth::compare_num_correct(double got) const {
  std::int64_t unsure = 0;
  for (std::int64_t i = 0; i < input_.tokens; ++i) {
    if (targets_[i] >= 0 && is_ambiguous(i)) ++unsure;
  }
  return {"num_correct", distance(got, static_cast<double>(result_.num_correct)),
          static_cast<double>(unsure)};
}

std::vector<Check> Truth::compare(const OutputTensors& outputs) const {
  const double tiny = std::numeric_limits<float>::min();
  const double token = 2 * delta_ + 16 * epsilon_;
  std::vector<Check> checks;
  const auto values = [&](const char* name) { return numbers_of(outputs.find(name)->view()); };
  const auto add = [&](const char* name, const std::vector<double>& want, double floor,
                       double limit) {
    if (outputs.find(name) != nullptr) {
      checks.push_back({name, element_error(values(name), want, floor), limit});
    }
  };
  add("loss", result_.loss, tiny, token);
  for (const Gradient& gradient : gradients_) {
    checks.push_back(compare_gradient(gradient, values(gradient.name)));
  }
  add("lse", result_.lse, 1.0, token);
  add("logprob", result_.logprob, tiny, token);
  add("entropy", result_.entropy, 1.0, 2 * token + 64 * epsilon_);
  // Its error is that of the lse, which may pass through 0 where the loss does not.
  const double loss_size = norm(result_.loss);
  add("z_loss", result_.z_loss, std::max(tiny, 1e-2 * loss_size), token);
  add("topk_logprob", result_.topk_logprob, 1.0, token);
  if (outputs.find("topk_index") != nullptr) {
    checks.push_back(compare_topk_index(values("topk_index")));
  }
  if (outputs.find("argmax") != nullptr) checks.push_back(compare_argmax(values("argmax")));
  if (outputs.find("num_correct") != nullptr) {
    checks.push_back(compare_num_correct(values("num_correct")[0]));
  }
  if (outputs.find("num_valid") != nullptr) {
    checks.push_back({"num_valid",
                      distance(values("num_valid")[0], static_cast<double>(result_.num_valid)),
                      0.0});
  }
  return checks;
}

double Truth::unfused_error(const std::string& gradient) const {
  for (const Gradient& kept : gradients_) {
    if (kept.name == gradient) return kept.unfused;
  }
  return 0.0;
}

}  // namespace flce::cli
