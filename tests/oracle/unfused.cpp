// SPDX-License-Identifier: Apache-2.0
#include "oracle/unfused.hpp"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>

namespace oracle {
namespace {

using Floats = std::vector<float>;

constexpr std::int64_t kBlock = 384;  // inner length of a block, as in common sgemm kernels

struct Shape {
  std::int64_t rows = 0;
  std::int64_t inner = 0;
  std::int64_t cols = 0;
};

// a (rows, inner) * b (inner, cols), every sum in f32 with fused multiply-add.
Floats multiply(const Floats& a, const Floats& b, const Shape& shape) {
  Floats out(static_cast<std::size_t>(shape.rows * shape.cols), 0.0F);
  Floats block(static_cast<std::size_t>(shape.cols));
  for (std::int64_t i = 0; i < shape.rows; ++i) {
    for (std::int64_t begin = 0; begin < shape.inner; begin += kBlock) {
      std::fill(block.begin(), block.end(), 0.0F);
      for (std::int64_t k = begin; k < std::min(begin + kBlock, shape.inner); ++k) {
        const double left = a[i * shape.inner + k];
        const float* right = b.data() + k * shape.cols;
        for (std::int64_t j = 0; j < shape.cols; ++j) {
          block[j] = static_cast<float>(static_cast<double>(block[j]) + left * right[j]);
        }
      }
      for (std::int64_t j = 0; j < shape.cols; ++j) out[i * shape.cols + j] += block[j];
    }
  }
  return out;
}

Floats transposed(const Floats& a, std::int64_t rows, std::int64_t cols) {
  Floats out(a.size());
  for (std::int64_t i = 0; i < rows; ++i) {
    for (std::int64_t j = 0; j < cols; ++j) out[j * rows + i] = a[i * cols + j];
  }
  return out;
}

Floats to_floats(const std::vector<double>& values) { return {values.begin(), values.end()}; }

std::vector<double> rounded(const Floats& values, Format format) {
  std::vector<double> out(values.size());
  for (std::size_t i = 0; i < values.size(); ++i) out[i] = round_to(format, values[i]);
  return out;
}

float value_or(const std::vector<double>& values, std::int64_t at, double otherwise) {
  return static_cast<float>(values.empty() ? otherwise : values[at]);
}

// Sixteen partial sums, as a vectorised softmax keeps them.
float sum_of(const float* values, std::int64_t count) {
  float lanes[16] = {};
  for (std::int64_t j = 0; j < count; ++j) lanes[j % 16] += values[j];
  for (int step = 8; step > 0; step /= 2) {
    for (int lane = 0; lane < step; ++lane) lanes[lane] += lanes[lane + step];
  }
  return lanes[0];
}

struct Head {
  const Input& input;
  float weight_sum = 0.0F;
  float divisor = 1.0F;
};

// One row of logits z -> u in place, and du/dz beside it.
void shape_logits(const Input& input, std::int64_t token, float* u, Floats& slope) {
  const float temperature = value_or(input.temperature_per_token, token, input.temperature);
  const auto cap = static_cast<float>(input.softcap);
  for (std::int64_t j = 0; j < input.vocab; ++j) {
    float z = static_cast<float>(input.scale) * u[j] + value_or(input.bias, j, 0.0);
    slope[j] = 1.0F / temperature;
    if (cap > 0.0F) {
      const float t = std::tanh(z / cap);
      slope[j] *= 1.0F - t * t;
      z = cap * t;
    }
    u[j] = z / temperature;
  }
}

// One row of u -> the logit gradient in place. Returns the loss.
float row_loss(const Head& head, std::int64_t token, std::int64_t target, float* u,
               const Floats& slope) {
  const Input& input = head.input;
  const float top = *std::max_element(u, u + input.vocab);
  Floats odds(static_cast<std::size_t>(input.vocab));
  for (std::int64_t j = 0; j < input.vocab; ++j) odds[j] = std::exp(u[j] - top);
  const float sum = sum_of(odds.data(), input.vocab);
  const float lse = top + std::log(sum);
  const auto eps = static_cast<float>(input.smoothing);
  const float spread = eps / static_cast<float>(input.vocab);
  const auto lambda = static_cast<float>(input.z_loss);
  const float own = (1.0F - eps) * value_or(input.class_weight, target, 1.0);
  const float all = own + spread * head.weight_sum + 2.0F * lambda * lse;
  const float m = value_or(input.token_weight, token, 1.0);
  float smooth = 0.0F;
  if (eps > 0.0F) {
    Floats terms(static_cast<std::size_t>(input.vocab));
    for (std::int64_t j = 0; j < input.vocab; ++j) {
      terms[j] = value_or(input.class_weight, j, 1.0) * (lse - u[j]);
    }
    smooth = spread * sum_of(terms.data(), input.vocab);
  }
  const float loss = m * (own * (lse - u[target]) + smooth + lambda * lse * lse);
  for (std::int64_t j = 0; j < input.vocab; ++j) {
    float g = all * (odds[j] / sum);
    if (j == target) g -= own;
    if (eps > 0.0F) g -= spread * value_or(input.class_weight, j, 1.0);
    u[j] = m * g * slope[j] / head.divisor;
  }
  return loss;
}

Head head_of(const Input& input, const std::vector<std::int64_t>& targets) {
  Head head{input};
  for (std::int64_t j = 0; j < input.vocab; ++j) {
    head.weight_sum += value_or(input.class_weight, j, 1.0);
  }
  head.divisor = static_cast<float>(divisor_of(input, targets));
  return head;
}

std::vector<double> reduce(const Input& input, const std::vector<double>& losses, float divisor) {
  if (input.reduction == Reduction::kNone) return losses;
  Floats values = to_floats(losses);
  return {sum_of(values.data(), static_cast<std::int64_t>(values.size())) / divisor};
}

std::vector<double> column_sums(const Floats& g, const Input& input) {
  Floats sums(static_cast<std::size_t>(input.vocab), 0.0F);
  for (std::int64_t i = 0; i < input.tokens; ++i) {
    for (std::int64_t j = 0; j < input.vocab; ++j) sums[j] += g[i * input.vocab + j];
  }
  return {sums.begin(), sums.end()};
}

}  // namespace

Unfused unfused(const Input& input, Format format, Format grad_weight_format) {
  const std::vector<std::int64_t> targets = resolved_targets(input);
  const Head head = head_of(input, targets);
  const Floats x = to_floats(input.x);
  const Floats w = to_floats(input.w);
  Floats g = multiply(x, transposed(w, input.vocab, input.hidden),
                      {input.tokens, input.hidden, input.vocab});
  Unfused out;
  out.token_loss.assign(static_cast<std::size_t>(input.tokens), 0.0);
  Floats slope(static_cast<std::size_t>(input.vocab));
  for (std::int64_t i = 0; i < input.tokens; ++i) {
    float* row = g.data() + i * input.vocab;
    if (targets[i] < 0) {
      std::fill(row, row + input.vocab, 0.0F);
      continue;
    }
    shape_logits(input, i, row, slope);
    out.token_loss[i] = row_loss(head, i, targets[i], row, slope);
  }
  out.loss = reduce(input, out.token_loss, head.divisor);
  out.grad_bias = column_sums(g, input);
  const auto scale = static_cast<float>(input.scale);
  for (float& value : g) value = static_cast<float>(round_to(format, value * scale));
  out.grad_hidden = rounded(multiply(g, w, {input.tokens, input.vocab, input.hidden}), format);
  out.grad_weight = rounded(multiply(transposed(g, input.tokens, input.vocab), x,
                                     {input.vocab, input.tokens, input.hidden}),
                            grad_weight_format);
  return out;
}

}  // namespace oracle
