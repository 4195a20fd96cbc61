// SPDX-License-Identifier: Apache-2.0
#include "train_model.hpp"

#include <Eigen/Core>
#include <algorithm>
#include <cmath>
#include <utility>

#include "parallel.hpp"
#include "train_random.hpp"

namespace flce::cli {
namespace {

using Matrix = Eigen::Matrix<float, Eigen::Dynamic, Eigen::Dynamic, Eigen::RowMajor>;
using MatrixMap = Eigen::Map<Matrix>;
using ConstMatrixMap = Eigen::Map<const Matrix>;

constexpr std::int64_t kRowPiece = 64;          // rows of a product that one thread does at a time
constexpr std::int64_t kUpdatePiece = 1 << 16;  // elements of an optimiser step
constexpr float kGeluA = 0.7978845608F;         // sqrt(2 / pi)
constexpr float kGeluB = 0.044715F;

Parameter make_parameter(const char* name, std::int64_t rows, std::int64_t cols, double deviation,
                         Random& random) {
  Parameter parameter{.name = name, .rows = rows, .cols = cols, .is_matrix = deviation > 0.0};
  const auto size = static_cast<std::size_t>(rows * cols);
  parameter.value.assign(size, 0.0F);
  if (deviation > 0.0) {
    for (float& value : parameter.value) value = static_cast<float>(deviation * random.normal());
  }
  parameter.grad.assign(size, 0.0F);
  parameter.mean.assign(size, 0.0F);
  parameter.square.assign(size, 0.0F);
  return parameter;
}

MatrixMap map_of(std::vector<float>& values, std::int64_t rows, std::int64_t cols) {
  return {values.data(), rows, cols};
}

ConstMatrixMap map_of(const std::vector<float>& values, std::int64_t rows, std::int64_t cols) {
  return {values.data(), rows, cols};
}

float gelu(float x) { return 0.5F * x * (1.0F + std::tanh(kGeluA * (x + kGeluB * x * x * x))); }

float gelu_slope(float x) {
  const float t = std::tanh(kGeluA * (x + kGeluB * x * x * x));
  const float inner = kGeluA * (1.0F + 3.0F * kGeluB * x * x);
  return 0.5F * (1.0F + t) + 0.5F * x * (1.0F - t * t) * inner;
}

}  // namespace

Model::Model(const ModelShape& shape, std::uint64_t seed, int num_threads)
    : shape_(shape), num_threads_(num_threads) {
  Random random(seed);
  const std::int64_t width = shape.context * shape.embed;
  embed_ = make_parameter("embed", shape.vocab, shape.embed, 0.5, random);
  linear_ = make_parameter("linear", shape.hidden, width,
                           1.5 / std::sqrt(static_cast<double>(width)), random);
  linear_bias_ = make_parameter("linear_bias", 1, shape.hidden, 0.0, random);
  head_ = make_parameter("head", shape.vocab, shape.hidden,
                         0.3 / std::sqrt(static_cast<double>(shape.hidden)), random);
  head_bias_ = make_parameter("head_bias", 1, shape.vocab, 0.0, random);
}

std::vector<Parameter*> Model::parameters() {
  return {&embed_, &linear_, &linear_bias_, &head_, &head_bias_};
}

void Model::gather() {
  for (std::size_t i = 0; i < contexts_.size(); ++i) {
    const float* row = embed_.value.data() + contexts_[i] * shape_.embed;
    std::copy(row, row + shape_.embed,
              joined_.data() + static_cast<std::int64_t>(i) * shape_.embed);
  }
}

void Model::scatter() {
  std::fill(embed_.grad.begin(), embed_.grad.end(), 0.0F);
  for (std::size_t i = 0; i < contexts_.size(); ++i) {
    const float* from = joined_grad_.data() + static_cast<std::int64_t>(i) * shape_.embed;
    float* to = embed_.grad.data() + contexts_[i] * shape_.embed;
    for (std::int64_t k = 0; k < shape_.embed; ++k) to[k] += from[k];
  }
}

void Model::forward(const std::vector<std::int32_t>& contexts, std::vector<float>& hidden) {
  contexts_ = contexts;
  const std::int64_t tokens = static_cast<std::int64_t>(contexts.size()) / shape_.context;
  const std::int64_t width = shape_.context * shape_.embed;
  joined_.resize(static_cast<std::size_t>(tokens * width));
  before_.resize(static_cast<std::size_t>(tokens * shape_.hidden));
  hidden.resize(before_.size());
  gather();
  const ConstMatrixMap joined = map_of(std::as_const(joined_), tokens, width);
  const ConstMatrixMap linear = map_of(std::as_const(linear_.value), shape_.hidden, width);
  const ConstMatrixMap bias = map_of(std::as_const(linear_bias_.value), 1, shape_.hidden);
  MatrixMap before = map_of(before_, tokens, shape_.hidden);
  in_parallel(
      tokens, kRowPiece,
      [&](std::int64_t begin, std::int64_t end) {
        const std::int64_t rows = end - begin;
        before.middleRows(begin, rows).noalias() =
            joined.middleRows(begin, rows) * linear.transpose();
        before.middleRows(begin, rows).rowwise() += bias.row(0);
        for (std::int64_t i = begin * shape_.hidden; i < end * shape_.hidden; ++i) {
          hidden[i] = gelu(before_[i]);
        }
      },
      num_threads_);
}

void Model::backward(const std::vector<float>& grad_hidden) {
  const std::int64_t width = shape_.context * shape_.embed;
  const std::int64_t tokens = static_cast<std::int64_t>(before_.size()) / shape_.hidden;
  joined_grad_.resize(joined_.size());
  MatrixMap before = map_of(before_, tokens, shape_.hidden);
  const ConstMatrixMap joined = map_of(std::as_const(joined_), tokens, width);
  const ConstMatrixMap linear = map_of(std::as_const(linear_.value), shape_.hidden, width);
  MatrixMap joined_grad = map_of(joined_grad_, tokens, width);
  in_parallel(
      tokens, kRowPiece,
      [&](std::int64_t begin, std::int64_t end) {
        for (std::int64_t i = begin * shape_.hidden; i < end * shape_.hidden; ++i) {
          before_[i] = grad_hidden[i] * gelu_slope(before_[i]);
        }
        joined_grad.middleRows(begin, end - begin).noalias() =
            before.middleRows(begin, end - begin) * linear;
      },
      num_threads_);
  MatrixMap linear_grad = map_of(linear_.grad, shape_.hidden, width);
  MatrixMap bias_grad = map_of(linear_bias_.grad, 1, shape_.hidden);
  in_parallel(
      shape_.hidden, kRowPiece,
      [&](std::int64_t begin, std::int64_t end) {
        linear_grad.middleRows(begin, end - begin).noalias() =
            before.middleCols(begin, end - begin).transpose() * joined;
      },
      num_threads_);
  bias_grad.row(0) = before.colwise().sum();
  scatter();
}

void adamw_update(Parameter& parameter, const AdamW& settings, double learning_rate,
                  std::int64_t step, int num_threads) {
  const auto steps = static_cast<double>(step);
  const auto beta1 = static_cast<float>(settings.beta1);
  const auto beta2 = static_cast<float>(settings.beta2);
  const auto epsilon = static_cast<float>(settings.epsilon);
  const auto rate = static_cast<float>(learning_rate / (1.0 - std::pow(settings.beta1, steps)));
  const auto square_scale = static_cast<float>(1.0 / (1.0 - std::pow(settings.beta2, steps)));
  const auto keep =
      static_cast<float>(parameter.is_matrix ? 1.0 - learning_rate * settings.weight_decay : 1.0);
  const auto count = static_cast<std::int64_t>(parameter.value.size());
  in_parallel(
      count, kUpdatePiece,
      [&](std::int64_t begin, std::int64_t end) {
        for (std::int64_t i = begin; i < end; ++i) {
          const float g = parameter.grad[i];
          float& mean = parameter.mean[i];
          float& square = parameter.square[i];
          mean += (1.0F - beta1) * (g - mean);
          square += (1.0F - beta2) * (g * g - square);
          parameter.value[i] = parameter.value[i] * keep -
                               rate * mean / (std::sqrt(square * square_scale) + epsilon);
        }
      },
      num_threads);
}

}  // namespace flce::cli
