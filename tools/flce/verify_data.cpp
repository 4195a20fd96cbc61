// SPDX-License-Identifier: Apache-2.0
#include "verify_data.hpp"

#include <fmt/core.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <utility>

#include "parallel.hpp"
#include "random_matrix.hpp"
#include "train_random.hpp"
#include "verify_numbers.hpp"

namespace flce::cli {
namespace {

// Streams of random numbers: one for each tensor, so that an option does not move the others.
enum Stream : std::uint64_t { kHidden = 1, kWeight, kTarget, kAim, kVectors, kStarts };

// Tokens that a thread takes at a time.
constexpr std::int64_t kTokensAtOnce = 16;

Random stream_of(const DataSettings& settings, Stream stream) {
  return Random(settings.seed * 1'000'003 + stream);
}

template <typename Value>
void fill(io::Tensor& tensor, Value value) {
  const io::TensorView view = tensor.view();
  std::int64_t count = 1;
  for (const std::int64_t size : view.shape) count *= size;
  for (std::int64_t i = 0; i < count; ++i) store_number(view.dtype, tensor.data(), i, value(i));
}

}  // namespace

const char* name_of(DataKind kind) noexcept {
  switch (kind) {
    case DataKind::kRandom:
      return "random";
    case DataKind::kPeaked:
      return "peaked";
    case DataKind::kConfident:
      return "confident";
    case DataKind::kCommonMean:
      return "common-mean";
  }
  return "";
}

DataKind data_kind_of(std::string_view name) {
  for (const DataKind kind :
       {DataKind::kRandom, DataKind::kPeaked, DataKind::kConfident, DataKind::kCommonMean}) {
    if (name == name_of(kind)) return kind;
  }
  throw Error(ErrorCode::kInvalidArgument,
              fmt::format("unknown kind of data '{}'; known: {}", name, kDataKindNames));
}

ProblemData::ProblemData(const Problem& problem, const DataSettings& settings) : problem_(problem) {
  make_matrices(settings);
  make_targets(settings);
  aim_at_targets(settings);
  make_vectors(settings);
  make_starts(settings);
  if (settings.poison_ignored) poison();
}

io::Tensor& ProblemData::add(const std::string& name, Dtype dtype, io::Shape shape) {
  return tensors_.emplace(name, io::Tensor(name, dtype, std::move(shape))).first->second;
}

const io::Tensor* ProblemData::find(const std::string& name) const {
  const auto found = tensors_.find(name);
  return found == tensors_.end() ? nullptr : &found->second;
}

std::uint64_t ProblemData::input_bytes() const {
  std::uint64_t bytes = 0;
  for (const auto& [name, tensor] : tensors_) {
    if (name.find("_start") == std::string::npos) bytes += tensor.view().bytes.size();
  }
  return bytes;
}

void ProblemData::make_matrices(const DataSettings& settings) {
  const Problem& p = problem_;
  io::Tensor& hidden = add("hidden", p.dtype, {p.tokens, p.hidden});
  io::Tensor& weight = add("weight", p.dtype, {p.vocab, p.hidden});
  const double root = std::sqrt(static_cast<double>(std::max<std::int64_t>(p.hidden, 1)));
  const double size = (settings.kind == DataKind::kPeaked ? 8.0 : 1.0) / root;
  std::vector<double> mean;
  Random random = stream_of(settings, kWeight);
  if (settings.kind == DataKind::kCommonMean) {
    mean.resize(static_cast<std::size_t>(p.hidden));
    for (double& value : mean) value = 4.0 / root * random.normal();
  }
  inputs_.hidden = io::as_matrix(hidden);
  inputs_.weight = io::as_matrix(weight);
  fill_normal(inputs_.weight, random, size, mean);
  fill_normal(inputs_.hidden, stream_of(settings, kHidden), 1.0, {});
}

void ProblemData::make_targets(const DataSettings& settings) {
  const Problem& p = problem_;
  io::Tensor& target = add("target", p.target_dtype, {p.tokens});
  Random random = stream_of(settings, kTarget);
  fill(target, [&](std::int64_t) {
    const bool ignored = random.uniform() < settings.ignored_share;
    const std::int64_t value = p.vocab > 0 ? random.below(p.vocab) : p.options.ignore_index;
    return static_cast<double>(ignored ? p.options.ignore_index : value);
  });
  inputs_.target = io::as_vector(target);
}

// Confident data: hidden rows along the weight rows of their targets, 16 to 30 ahead of the rest.
void ProblemData::aim_at_targets(const DataSettings& settings) {
  if (settings.kind != DataKind::kConfident) return;
  const std::vector<std::int64_t> targets = resolved_targets();
  Random random = stream_of(settings, kAim);
  std::vector<double> leads(targets.size());
  for (double& lead : leads) lead = 16.0 + 14.0 * random.uniform();
  in_parallel(problem_.tokens, kTokensAtOnce, [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t i = begin; i < end; ++i) {
      if (targets[i] >= 0) aim_row(i, targets[i], leads[i]);
    }
  });
}

void ProblemData::aim_row(std::int64_t token, std::int64_t target, double lead) {
  const Problem& p = problem_;
  const auto weight = [&](std::int64_t k) {
    return load_number(p.dtype, inputs_.weight.data, target * p.hidden + k);
  };
  double square = 0.0;
  for (std::int64_t k = 0; k < p.hidden; ++k) square += weight(k) * weight(k);
  for (std::int64_t k = 0; k < p.hidden; ++k) {
    const std::int64_t at = token * p.hidden + k;
    const double noise = 0.1 * load_number(p.dtype, inputs_.hidden.data, at);
    const double aim = square > 0.0 ? lead * weight(k) / square : 0.0;
    store_number(p.dtype, inputs_.hidden.data, at, std::clamp(noise + aim, -200.0, 200.0));
  }
}

void ProblemData::make_vectors(const DataSettings& settings) {
  const Problem& p = problem_;
  Random random = stream_of(settings, kVectors);
  const auto positive = [&](std::int64_t) { return 0.5 + random.uniform(); };
  const auto normal = [&](std::int64_t) { return random.normal(); };
  const auto vector = [&](const char* name, Dtype dtype, std::int64_t size, auto value) {
    if (dtype == Dtype::kNone) return VectorView{};
    io::Tensor& tensor = add(name, dtype, {size});
    fill(tensor, value);
    return io::as_vector(tensor);
  };
  inputs_.bias = vector("bias", p.bias_dtype, p.vocab, normal);
  inputs_.class_weight = vector("class_weight", p.class_weight_dtype, p.vocab, positive);
  inputs_.token_weight = vector("token_weight", p.token_weight_dtype, p.tokens, positive);
  inputs_.temperature = vector("temperature", p.temperature_dtype, p.tokens, positive);
  inputs_.normalizer = vector("normalizer", p.normalizer_dtype, 1,
                              [&](std::int64_t) { return static_cast<double>(p.tokens + 3); });
  inputs_.grad_entropy = vector("grad_entropy", p.grad_entropy_dtype, p.tokens, normal);
  if (p.upstream == Upstream::kScalar) {
    inputs_.grad_output =
        vector("grad_output", p.grad_output_dtype, 1, [](std::int64_t) { return 0.75; });
  } else if (p.upstream == Upstream::kPerToken) {
    inputs_.grad_output = vector("grad_output", p.grad_output_dtype, p.tokens, normal);
  }
}

void ProblemData::make_starts(const DataSettings& settings) {
  const Problem& p = problem_;
  Random random = stream_of(settings, kStarts);
  const auto small = [&](std::int64_t) { return 0.01 * random.normal(); };
  const auto or_else = [](Dtype dtype, Dtype other) {
    return dtype == Dtype::kNone ? other : dtype;
  };
  if (p.accumulate_grad_weight && p.wants.grad_weight) {
    fill(add("grad_weight_start", or_else(p.grad_weight_dtype, p.dtype), {p.vocab, p.hidden}),
         small);
  }
  if (p.accumulate_grad_bias && p.wants.grad_bias) {
    fill(add("grad_bias_start", or_else(p.grad_bias_dtype, p.bias_dtype), {p.vocab}), small);
  }
}

void ProblemData::poison() {
  const std::vector<std::int64_t> targets = resolved_targets();
  for (std::int64_t i = 0; i < problem_.tokens; ++i) {
    for (std::int64_t k = 0; targets[i] < 0 && k < problem_.hidden; ++k) {
      store_number(problem_.dtype, inputs_.hidden.data, i * problem_.hidden + k,
                   std::numeric_limits<double>::quiet_NaN());
    }
  }
}

std::vector<double> ProblemData::values(const std::string& name) const {
  const io::Tensor* tensor = find(name);
  if (tensor == nullptr) return {};
  const io::TensorView view = tensor->view();
  std::vector<double> values(view.bytes.size() / static_cast<std::size_t>(size_of(view.dtype)));
  for (std::size_t i = 0; i < values.size(); ++i) {
    values[i] = load_number(view.dtype, view.bytes.data(), static_cast<std::int64_t>(i));
  }
  return values;
}

std::vector<std::int64_t> ProblemData::targets() const {
  const std::vector<double> numbers = values("target");
  return {numbers.begin(), numbers.end()};
}

void ProblemData::set_targets(const std::vector<double>& targets) {
  for (std::size_t i = 0; i < targets.size(); ++i) {
    store_number(problem_.target_dtype, inputs_.target.data, static_cast<std::int64_t>(i),
                 targets[i]);
  }
}

std::vector<std::int64_t> ProblemData::resolved_targets() const {
  const Options& options = problem_.options;
  const std::vector<std::int64_t> given = targets();
  const std::int64_t length = options.sequence_length > 0
                                  ? options.sequence_length
                                  : std::max<std::int64_t>(problem_.tokens, 1);
  std::vector<std::int64_t> resolved(given.size(), -1);
  for (std::int64_t i = 0; i < problem_.tokens; ++i) {
    if (i % length + options.shift >= length) continue;
    const std::int64_t target = given[i + options.shift];
    if (target != options.ignore_index) resolved[i] = target;
  }
  return resolved;
}

}  // namespace flce::cli
