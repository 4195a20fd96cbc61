// SPDX-License-Identifier: Apache-2.0
#include "train_loop.hpp"

#include <fmt/core.h>

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <nlohmann/json.hpp>
#include <span>

#include "io/safetensors.hpp"
#include "step_memory.hpp"

namespace flce::cli {
namespace {

constexpr std::int64_t kMaxValidTokens = 2048;
constexpr std::int64_t kValidShare = 20;  // one twentieth of the text

double seconds_since(std::chrono::steady_clock::time_point start) {
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
}

TrainSettings with_vocab(TrainSettings settings, const Corpus& corpus) {
  settings.shape.vocab = corpus.vocab();
  return settings;
}

}  // namespace

std::int64_t Trainer::min_tokens(std::int64_t context) {
  return std::max<std::int64_t>(64, 4 * (context + 1));
}

Trainer::Trainer(const Corpus& corpus, const TrainSettings& settings)
    : corpus_(corpus),
      settings_(with_vocab(settings, corpus)),
      model_(settings_.shape, settings.seed, settings.num_threads),
      loss_step_(settings_.shape, settings.batch, settings.loss, true),
      random_(settings.seed + 0x5EED) {
  const auto count = static_cast<std::int64_t>(corpus.tokens.size());
  const std::int64_t context = settings_.shape.context;
  if (count < min_tokens(context)) {
    throw Error(ErrorCode::kInvalidArgument,
                fmt::format("the text has {} tokens; at least {} are needed for a context of {}",
                            count, min_tokens(context), context));
  }
  train_end_ = count - std::max(count / kValidShare, context + 1);
  valid_tokens_ = std::min(count - train_end_ - context, kMaxValidTokens);
}

// Contexts and targets of the tokens at these positions.
void Trainer::fill_batch(const std::vector<std::int64_t>& positions) {
  const std::int64_t context = settings_.shape.context;
  contexts_.clear();
  target_.clear();
  for (const std::int64_t position : positions) {
    const std::int32_t* token = corpus_.tokens.data() + position;
    contexts_.insert(contexts_.end(), token - context, token);
    target_.push_back(*token);
  }
}

void Trainer::draw_batch() {
  const std::int64_t context = settings_.shape.context;
  std::vector<std::int64_t> positions(static_cast<std::size_t>(settings_.batch));
  for (std::int64_t& position : positions) {
    position = context + random_.below(train_end_ - context);
  }
  fill_batch(positions);
}

// The same tokens every time, evenly spread over the validation part.
double Trainer::validation_loss() {
  const std::int64_t first = train_end_ + settings_.shape.context;
  const std::int64_t room = static_cast<std::int64_t>(corpus_.tokens.size()) - first;
  std::vector<std::int64_t> positions(static_cast<std::size_t>(valid_tokens_));
  for (std::int64_t i = 0; i < valid_tokens_; ++i) positions[i] = first + i * room / valid_tokens_;
  fill_batch(positions);
  model_.forward(contexts_, hidden_);
  LossStep evaluation(settings_.shape, valid_tokens_, settings_.loss, false);
  return evaluation.run(hidden_, target_, model_, grad_hidden_);
}

std::uint64_t Trainer::measure_growth() {
  const Random before = random_;
  draw_batch();
  random_ = before;
  model_.forward(contexts_, hidden_);
  grad_hidden_.assign(hidden_.size(), 0.0F);
  const MemoryGrowth growth(settings_.loss.caps.kind);
  loss_step_.run(hidden_, target_, model_, grad_hidden_);
  return growth.bytes();
}

double Trainer::learning_rate_at(std::int64_t step) const {
  const auto at = static_cast<double>(step);
  const auto warmup = static_cast<double>(settings_.warmup);
  if (at < warmup) return settings_.learning_rate * (at + 1) / warmup;
  const double left = static_cast<double>(settings_.steps) - at;
  const double room = std::max(1.0, static_cast<double>(settings_.steps) - warmup);
  return settings_.learning_rate * (0.1 + 0.9 * left / room);
}

double Trainer::one_step(std::int64_t step) {
  draw_batch();
  model_.forward(contexts_, hidden_);
  const double loss = loss_step_.run(hidden_, target_, model_, grad_hidden_);
  model_.backward(grad_hidden_);
  for (Parameter* parameter : model_.parameters()) {
    adamw_update(*parameter, settings_.optimizer, learning_rate_at(step), step + 1,
                 settings_.num_threads);
  }
  step_seconds_.push_back(loss_step_.last_seconds());
  loss_seconds_ += loss_step_.last_seconds();
  return loss;
}

void Trainer::train(const std::function<void(const TrainPoint&)>& on_point,
                    const std::function<void(std::int64_t)>& on_step) {
  on_point({0, 0.0, validation_loss(), 0.0});
  auto since = std::chrono::steady_clock::now();
  std::int64_t counted = 0;
  for (std::int64_t step = 0; step < settings_.steps; ++step) {
    last_loss_ = one_step(step);
    if (step == 0) first_loss_ = last_loss_;
    ++counted;
    on_step(step + 1);
    const bool last = step + 1 == settings_.steps;
    const bool due = settings_.eval_every > 0 && (step + 1) % settings_.eval_every == 0;
    if (!last && !due) continue;
    const double seconds = seconds_since(since) / static_cast<double>(counted);
    on_point({step + 1, last_loss_, validation_loss(), seconds});
    since = std::chrono::steady_clock::now();
    counted = 0;
  }
}

double Trainer::median_loss_seconds() const {
  if (step_seconds_.empty()) return 0.0;
  std::vector<double> sorted = step_seconds_;
  std::sort(sorted.begin(), sorted.end());
  return sorted[sorted.size() / 2];
}

std::int64_t Trainer::num_parameters() {
  std::int64_t count = 0;
  for (const Parameter* parameter : model_.parameters()) count += parameter->rows * parameter->cols;
  return count;
}

void Trainer::save(const std::string& path) {
  std::vector<io::TensorView> tensors;
  for (const Parameter* parameter : model_.parameters()) {
    io::Shape shape{parameter->cols};
    if (parameter->is_matrix) shape = {parameter->rows, parameter->cols};
    tensors.push_back(
        {parameter->name, "", Dtype::kF32, shape, std::as_bytes(std::span(parameter->value))});
  }
  io::Metadata metadata;
  metadata["format"] = "flce train";
  metadata["context"] = std::to_string(settings_.shape.context);
  metadata["vocab"] =
      nlohmann::json(corpus_.words).dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
  io::write_safetensors(path, tensors, metadata);
}

}  // namespace flce::cli
