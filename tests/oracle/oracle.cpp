// SPDX-License-Identifier: Apache-2.0
#include "oracle/oracle.hpp"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <limits>
#include <numeric>
#include <stdexcept>
#include <string>
#include <utility>

#include "oracle/row.hpp"

namespace oracle {
namespace {

// out[r, :] += factor * in[c, :] style products over tokens that have a target. `g` is (N, V).
struct Products {
  std::vector<double> hidden;
  std::vector<double> weight;
  std::vector<double> bias;
};

template <typename Value>
Products multiply(const Input& input, const std::vector<std::int64_t>& targets,
                  const std::vector<double>& g, Value value) {
  Products out{std::vector<double>(input.x.size()), std::vector<double>(input.w.size()),
               std::vector<double>(static_cast<std::size_t>(input.vocab))};
  const std::int64_t width = input.hidden;
  for (std::int64_t i = 0; i < input.tokens; ++i) {
    if (targets[i] < 0) continue;
    for (std::int64_t j = 0; j < input.vocab; ++j) {
      const double raw = g[i * input.vocab + j];
      const double scaled = raw * value(input.scale);
      out.bias[j] += raw;
      for (std::int64_t k = 0; k < width; ++k) {
        out.hidden[i * width + k] += scaled * value(input.w[j * width + k]);
        out.weight[j * width + k] += scaled * value(input.x[i * width + k]);
      }
    }
  }
  return out;
}

double norm(const std::vector<double>& values) {
  return std::sqrt(std::inner_product(values.begin(), values.end(), values.begin(), 0.0));
}

void resize(const Input& input, Result& result) {
  const auto tokens = static_cast<std::size_t>(input.tokens);
  const auto logits = static_cast<std::size_t>(input.tokens * input.vocab);
  const auto top = static_cast<std::size_t>(input.tokens * input.topk);
  for (auto* vector : {&result.token_loss, &result.lse, &result.logprob, &result.entropy,
                       &result.conditioning.loss}) {
    vector->assign(tokens, 0.0);
  }
  result.argmax.assign(tokens, 0);
  result.topk_logprob.assign(top, 0.0);
  result.topk_index.assign(top, 0);
  result.grad_logits.assign(logits, 0.0);
  result.logprobs.assign(logits, 0.0);
}

void fill_topk(const Input& input, const Row& row, std::int64_t token, Result& result) {
  std::vector<std::int64_t> order(static_cast<std::size_t>(input.vocab));
  std::iota(order.begin(), order.end(), 0);
  std::stable_sort(order.begin(), order.end(),
                   [&](std::int64_t a, std::int64_t b) { return row.u[a] > row.u[b]; });
  for (std::int64_t k = 0; k < input.topk; ++k) {
    const std::int64_t at = token * input.topk + k;
    result.topk_index[at] = order[k];
    result.topk_logprob[at] = static_cast<double>(row.u[order[k]] - row.lse);
  }
}

void fill_token_outputs(const Input& input, const Row& row, std::int64_t token, std::int64_t target,
                        Result& result) {
  result.lse[token] = static_cast<double>(row.lse);
  result.logprob[token] = static_cast<double>(-negative_log_likelihood(row, target));
  result.entropy[token] = static_cast<double>(entropy_of(row));
  result.argmax[token] = row.argmax;
  result.num_valid += 1;
  result.num_correct += row.argmax == target ? 1 : 0;
  for (std::int64_t j = 0; j < input.vocab; ++j) {
    result.logprobs[token * input.vocab + j] = static_cast<double>(row.u[j] - row.lse);
  }
  fill_topk(input, row, token, result);
}

RowUpstream upstream_of(const Input& input, std::int64_t token, double divisor) {
  RowUpstream upstream;
  if (input.grad_output.size() == 1) upstream.loss = input.grad_output[0];
  if (input.grad_output.size() > 1) upstream.loss = input.grad_output[token];
  upstream.loss /= Real(divisor);
  if (!input.grad_entropy.empty()) upstream.entropy = input.grad_entropy[token];
  return upstream;
}

// Sums, or keeps, the losses of the tokens as the reduction says. Only a mean of nothing is NaN.
std::vector<double> reduce(const Input& input, const std::vector<Real>& values,
                           const Result& result) {
  if (input.reduction == Reduction::kNone) return {values.begin(), values.end()};
  if (input.reduction == Reduction::kSum && result.num_valid == 0) return {0.0};
  const Real sum = std::accumulate(values.begin(), values.end(), Real(0));
  return {static_cast<double>(sum / Real(result.divisor))};
}

struct Gradients {
  std::vector<double> capped;
  std::vector<double> uncapped;
};

void finish_gradients(const Input& input, const std::vector<std::int64_t>& targets,
                      const Gradients& sizes, Result& result) {
  const auto same = [](double v) { return v; };
  const auto size = [](double v) { return std::abs(v); };
  Products grads = multiply(input, targets, result.grad_logits, same);
  result.grad_hidden = std::move(grads.hidden);
  result.grad_weight = std::move(grads.weight);
  result.grad_bias = std::move(grads.bias);
  const Products capped = multiply(input, targets, sizes.capped, size);
  result.conditioning.grad_hidden = norm(capped.hidden);
  result.conditioning.grad_weight = norm(capped.weight);
  result.conditioning.grad_bias = norm(capped.bias);
  if (input.softcap <= 0) return;
  const Products uncapped = multiply(input, targets, sizes.uncapped, size);
  result.conditioning.grad_hidden_uncapped = norm(uncapped.hidden);
  result.conditioning.grad_weight_uncapped = norm(uncapped.weight);
  result.conditioning.grad_bias_uncapped = norm(uncapped.bias);
}

}  // namespace

std::vector<std::int64_t> resolved_targets(const Input& input) {
  const std::int64_t length = input.sequence_length > 0 ? input.sequence_length : input.tokens;
  std::vector<std::int64_t> targets(static_cast<std::size_t>(input.tokens), -1);
  for (std::int64_t i = 0; i < input.tokens; ++i) {
    if (i % length + input.shift >= length) continue;
    const std::int64_t target = input.target[i + input.shift];
    if (target == input.ignore_index) continue;
    if (target < 0 || target >= input.vocab) {
      throw std::out_of_range("target " + std::to_string(target) + " of token " +
                              std::to_string(i));
    }
    targets[i] = target;
  }
  return targets;
}

double divisor_of(const Input& input, const std::vector<std::int64_t>& targets) {
  if (input.reduction == Reduction::kSum && input.has_normalizer) return input.normalizer;
  if (input.reduction != Reduction::kMean) return 1.0;
  Real sum = 0;
  for (const std::int64_t target : targets) {
    if (target >= 0) sum += input.class_weight.empty() ? 1.0 : input.class_weight[target];
  }
  // PyTorch adds the parts after dividing each: 0 / 0 is one of them.
  return sum != 0 ? static_cast<double>(sum) : std::numeric_limits<double>::quiet_NaN();
}

Result evaluate(const Input& input) {
  const std::vector<std::int64_t> targets = resolved_targets(input);
  Result result;
  resize(input, result);
  result.divisor = divisor_of(input, targets);
  Gradients sizes{result.grad_logits, result.grad_logits};
  std::vector<Real> losses(targets.size(), 0);
  std::vector<Real> z_parts(targets.size(), 0);
  for (std::int64_t i = 0; i < input.tokens; ++i) {
    if (targets[i] < 0) continue;
    const Row row = make_row(input, i, targets[i]);
    const RowLoss loss = loss_of(input, row, i, targets[i]);
    losses[i] = loss.total;
    z_parts[i] = loss.z_part;
    result.token_loss[i] = static_cast<double>(loss.total);
    Conditioning& conditioning = result.conditioning;
    conditioning.loss[i] = static_cast<double>(loss.magnitude);
    conditioning.logit = std::max(conditioning.logit, row.logit_magnitude);
    fill_token_outputs(input, row, i, targets[i], result);
    const RowGradient gradient =
        gradient_of(input, row, i, targets[i], upstream_of(input, i, result.divisor));
    const std::int64_t at = i * input.vocab;
    std::copy(gradient.value.begin(), gradient.value.end(), result.grad_logits.begin() + at);
    std::copy(gradient.capped.begin(), gradient.capped.end(), sizes.capped.begin() + at);
    std::copy(gradient.uncapped.begin(), gradient.uncapped.end(), sizes.uncapped.begin() + at);
  }
  result.loss = reduce(input, losses, result);
  result.z_loss = reduce(input, z_parts, result);
  finish_gradients(input, targets, sizes, result);
  return result;
}

}  // namespace oracle
