// SPDX-License-Identifier: Apache-2.0
#include "oracle/row.hpp"

#include <algorithm>
#include <cmath>
#include <cstddef>

namespace oracle {
namespace {

Real class_weight(const Input& input, std::int64_t j) {
  return input.class_weight.empty() ? Real(1) : Real(input.class_weight[j]);
}

Real class_weight_sum(const Input& input) {
  Real sum = 0;
  for (std::int64_t j = 0; j < input.vocab; ++j) sum += class_weight(input, j);
  return sum;
}

Real token_weight(const Input& input, std::int64_t token) {
  return input.token_weight.empty() ? Real(1) : Real(input.token_weight[token]);
}

void fill_logits(const Input& input, std::int64_t token, Row& row) {
  const double* x = input.x.data() + token * input.hidden;
  for (std::int64_t j = 0; j < input.vocab; ++j) {
    const double* w = input.w.data() + j * input.hidden;
    Real dot = 0;
    double magnitude = 0;
    for (std::int64_t k = 0; k < input.hidden; ++k) {
      dot += Real(x[k]) * Real(w[k]);
      magnitude += std::abs(x[k] * w[k]);
    }
    Real z = Real(input.scale) * dot;
    magnitude *= std::abs(input.scale);
    if (!input.bias.empty()) {
      z += Real(input.bias[j]);
      if (std::isfinite(input.bias[j])) magnitude += std::abs(input.bias[j]);
    }
    Real slope = 1;
    if (input.softcap > 0) {
      const Real t = std::tanh(z / Real(input.softcap));
      const Real c = std::cosh(z / Real(input.softcap));
      z = Real(input.softcap) * t;
      slope = 1 / (c * c);
    }
    row.u[j] = z / row.temperature;
    row.cap_slope[j] = slope;
    magnitude /= static_cast<double>(row.temperature);
    row.logit_magnitude = std::max(row.logit_magnitude, magnitude);
  }
}

}  // namespace

Row make_row(const Input& input, std::int64_t token, std::int64_t target) {
  const auto vocab = static_cast<std::size_t>(input.vocab);
  Row row;
  row.u.resize(vocab);
  row.cap_slope.resize(vocab);
  row.odds.resize(vocab);
  row.temperature = input.temperature_per_token.empty() ? Real(input.temperature)
                                                        : Real(input.temperature_per_token[token]);
  fill_logits(input, token, row);
  for (std::int64_t j = 1; j < input.vocab; ++j) {
    if (row.u[j] > row.u[row.argmax]) row.argmax = j;
  }
  row.top = row.u[row.argmax];
  for (std::int64_t j = 0; j < input.vocab; ++j) {
    row.odds[j] = std::exp(row.u[j] - row.top);
    row.sum += row.odds[j];
    if (j != target) row.others += row.odds[j];
    if (j != row.argmax) row.rest += row.odds[j];
  }
  row.target_odds = row.odds[target];
  row.lse = row.top + std::log1p(row.rest) + std::log(row.odds[row.argmax]);
  return row;
}

Real negative_log_likelihood(const Row& row, std::int64_t target) {
  if (row.others <= row.target_odds) return std::log1p(row.others / row.target_odds);
  return row.lse - row.u[target];
}

Real entropy_of(const Row& row) {
  Real mean_offset = 0;
  for (std::size_t j = 0; j < row.u.size(); ++j) {
    if (row.odds[j] != 0) mean_offset += row.odds[j] * (row.u[j] - row.top);
  }
  return std::log1p(row.rest) - mean_offset / row.sum;
}

RowLoss loss_of(const Input& input, const Row& row, std::int64_t token, std::int64_t target) {
  const Real eps = input.smoothing;
  const Real weight = class_weight(input, target);
  Real smooth = 0;
  if (eps != 0) {
    for (std::int64_t j = 0; j < input.vocab; ++j) {
      const Real w = class_weight(input, j);
      if (w != 0) smooth += w * (row.lse - row.u[j]);
    }
    smooth *= eps / Real(input.vocab);
  }
  const Real m = token_weight(input, token);
  const Real share = (1 - eps) * weight;
  RowLoss loss;
  loss.z_part = m * Real(input.z_loss) * row.lse * row.lse;
  loss.total = m * smooth + loss.z_part;
  if (share != 0) loss.total += m * share * negative_log_likelihood(row, target);
  loss.magnitude = std::abs(m) * (share + eps / Real(input.vocab) * class_weight_sum(input) +
                                  2 * Real(input.z_loss) * std::abs(row.lse));
  return loss;
}

RowGradient gradient_of(const Input& input, const Row& row, std::int64_t token, std::int64_t target,
                        const RowUpstream& upstream) {
  const auto vocab = static_cast<std::size_t>(input.vocab);
  const Real eps = input.smoothing;
  const Real own = (1 - eps) * class_weight(input, target);  // B
  const Real common = eps / Real(input.vocab) * (eps != 0 ? class_weight_sum(input) : Real(0)) +
                      2 * Real(input.z_loss) * row.lse;  // A - B
  const Real m = token_weight(input, token) * upstream.loss;
  const Real entropy = upstream.entropy != 0 ? entropy_of(row) : Real(0);
  RowGradient gradient{std::vector<double>(vocab), std::vector<double>(vocab),
                       std::vector<double>(vocab)};
  for (std::int64_t j = 0; j < input.vocab; ++j) {
    const Real p = row.odds[j] / row.sum;
    const Real smooth = eps / Real(input.vocab) * class_weight(input, j);
    const Real hit = j == target ? -own * (row.others / row.sum) : own * p;
    Real value = m * (hit + common * p - smooth);
    Real size = std::abs(m) * (std::abs(hit) + std::abs(smooth) +
                               (std::abs(common) + 2 * Real(input.z_loss)) * p);
    if (upstream.entropy != 0 && p != 0) {
      const Real surprise = row.u[j] - row.lse;
      value -= upstream.entropy * p * (surprise + entropy);
      size += std::abs(upstream.entropy) * p * (std::abs(surprise) + entropy + 1);
    }
    gradient.value[j] = static_cast<double>(value * row.cap_slope[j] / row.temperature);
    gradient.capped[j] = static_cast<double>(size * row.cap_slope[j] / row.temperature);
    gradient.uncapped[j] = static_cast<double>(size / row.temperature);
  }
  return gradient;
}

}  // namespace oracle
