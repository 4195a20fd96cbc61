// SPDX-License-Identifier: Apache-2.0
#include "train_demo.hpp"

#include <fmt/core.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <cmath>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "common.hpp"
#include "step_memory.hpp"
#include "train_head.hpp"

namespace flce::cli {
namespace {

using Json = nlohmann::json;

constexpr std::array kDemoMethods{Method::kNaive, Method::kChunked, Method::kFused,
                                  Method::kRecompute};
constexpr std::int64_t kHeadHidden = 512;
constexpr std::int64_t kHeadVocab = 128256;
// Tokens of the step, and a chunk that shows what less memory costs: a card has more of both.
struct HeadSize {
  std::int64_t tokens;
  std::int64_t small_chunk;
};
constexpr HeadSize kHeadOnCpu{1024, 128};
constexpr HeadSize kHeadOnCard{8192, 1024};
// What rounding differences of 1e-7 may grow to over a training run.
constexpr int kMinDigitsTrained = 2;
constexpr int kMinDigitsStep = 5;

std::string columns_text(DeviceKind device) {
  return fmt::format(
      "predicted extra: what the plan books; measured extra: how far the run really reached into "
      "it;\n"
      "{}; digits: of the loss, equal\n"
      "to naive's (all: the same bits), in the first and in the last step.\n",
      growth_meaning(device));
}

class Clock {
 public:
  double seconds() const {
    return std::chrono::duration<double>(std::chrono::steady_clock::now() - start_).count();
  }

 private:
  std::chrono::steady_clock::time_point start_ = std::chrono::steady_clock::now();
};

struct Trained {
  Method method = Method::kAuto;
  std::int64_t chunk = 0;
  std::uint64_t extra_bytes = 0;
  std::uint64_t used_bytes = 0;
  std::uint64_t growth_bytes = 0;
  double step_seconds = 0.0;
  double first_loss = 0.0;
  double last_loss = 0.0;
  double first_valid = 0.0;
  double last_valid = 0.0;
  double seconds = 0.0;
};

// Trains in this process and reports the losses on the way on one line.
Json train_here(const Corpus& corpus, const TrainSettings& settings) {
  Trainer trainer(corpus, settings);
  const std::uint64_t growth = trainer.measure_growth();
  double first_valid = 0.0;
  double last_valid = 0.0;
  write_out(fmt::format("  {:<10} validation loss", name_of(settings.loss.request.method)));
  trainer.train(
      [&](const TrainPoint& point) {
        if (point.step == 0) first_valid = point.valid_loss;
        last_valid = point.valid_loss;
        write_out(fmt::format(" {:.3f}", point.valid_loss));
      },
      [](std::int64_t) {});
  const LossStep& step = trainer.loss_step();
  write_out(fmt::format("  ({} a loss step)\n", format_seconds(trainer.median_loss_seconds())));
  return {{"chunk", step.plan().chunk},
          {"extra", step.plan().extra_bytes},
          {"used", step.used_bytes()},
          {"growth", growth},
          {"step_seconds", trainer.median_loss_seconds()},
          {"first_loss", trainer.first_loss()},
          {"last_loss", trainer.last_loss()},
          {"first_valid", first_valid},
          {"last_valid", last_valid}};
}

// Apart from the other methods: no method's pages or threads stand in another's way.
Trained train_with(const Corpus& corpus, TrainSettings settings, Method method) {
  settings.loss.request.method = method;
  const Clock clock;
  const Json seen =
      run_measured(settings.loss.caps.kind, [&] { return train_here(corpus, settings); });
  return {method,
          seen["chunk"].get<std::int64_t>(),
          seen["extra"].get<std::uint64_t>(),
          seen["used"].get<std::uint64_t>(),
          seen["growth"].get<std::uint64_t>(),
          seen["step_seconds"].get<double>(),
          seen["first_loss"].get<double>(),
          seen["last_loss"].get<double>(),
          seen["first_valid"].get<double>(),
          seen["last_valid"].get<double>(),
          clock.seconds()};
}

std::string training_table(const std::vector<Trained>& all, DeviceKind device) {
  Table table({"method", "chunk", "predicted extra", "measured extra", growth_name(device),
               "loss step", "first loss", "final loss", "validation", "digits first",
               "digits final"});
  const Trained& naive = all.front();
  for (const Trained& one : all) {
    table.add({name_of(one.method), std::to_string(one.chunk), format_bytes(one.extra_bytes),
               format_bytes(one.used_bytes), format_bytes(one.growth_bytes),
               format_seconds(one.step_seconds), fmt::format("{:.6f}", one.first_loss),
               fmt::format("{:.6f}", one.last_loss), fmt::format("{:.4f}", one.last_valid),
               digits_text(one.first_loss, naive.first_loss),
               digits_text(one.last_loss, naive.last_loss)});
  }
  return table.text();
}

std::string head_table(const std::vector<HeadStep>& steps, DeviceKind device) {
  Table table({"method", "chunk", "predicted extra", "measured extra", growth_name(device), "time",
               "loss", "digits equal to naive"});
  std::string failures;
  for (const HeadStep& step : steps) {
    if (!step.failure.empty()) {
      failures += fmt::format("{}: {}\n", name_of(step.method), step.failure);
      continue;
    }
    const HeadStep& naive = steps.front();
    table.add({name_of(step.method), std::to_string(step.chunk), format_bytes(step.extra_bytes),
               format_bytes(step.used_bytes), format_bytes(step.growth_bytes),
               format_seconds(step.seconds), fmt::format("{:.7f}", step.loss),
               naive.failure.empty() ? digits_text(step.loss, naive.loss) : "-"});
  }
  return table.text() + failures;
}

bool all_equal(const std::vector<HeadStep>& steps) {
  return std::all_of(steps.begin(), steps.end(), [&](const HeadStep& step) {
    return !step.failure.empty() || !steps.front().failure.empty() ||
           equal_digits(step.loss, steps.front().loss) >= kMinDigitsStep;
  });
}

// Prints the part and returns whether the losses agree.
bool head_part(Dtype dtype, const DeviceCaps& caps, bool with_small_chunk) {
  const HeadSize size = caps.kind == DeviceKind::kCpu ? kHeadOnCpu : kHeadOnCard;
  std::vector<PlanRequest> requests{
      {.method = Method::kNaive}, {.method = Method::kChunked}, {.method = Method::kFused}};
  if (with_small_chunk) {
    requests.push_back({.method = Method::kFused, .chunk = size.small_chunk});
  }
  Problem problem;
  problem.tokens = size.tokens;
  problem.hidden = kHeadHidden;
  problem.vocab = kHeadVocab;
  problem.dtype = dtype;
  const Clock clock;
  write_out(
      fmt::format("\nOne step of a real head's size: N={}, H={}, V={}, {} (logits in f32: "
                  "{}; random data)\n",
                  size.tokens, kHeadHidden, kHeadVocab, name_of(dtype),
                  format_bytes(static_cast<std::uint64_t>(4 * size.tokens * kHeadVocab))));
  const std::vector<HeadStep> steps = run_head_steps(problem, caps, requests);
  write_out(head_table(steps, caps.kind));
  write_out(fmt::format("This part took {:.1f} s.\n", clock.seconds()));
  return all_equal(steps);
}

bool training_part(const Corpus& corpus, const TrainSettings& settings) {
  const Clock clock;
  const std::int64_t parts = (settings.batch + settings.loss.request.chunk - 1) /
                             std::max<std::int64_t>(settings.loss.request.chunk, 1);
  write_out(
      fmt::format("\nTraining with each method from the same seed: {} steps of {} tokens, "
                  "head H={}, V={}, chunks of {} tokens ({} a step)\n",
                  settings.steps, settings.batch, settings.shape.hidden, corpus.vocab(),
                  settings.loss.request.chunk, parts));
  std::vector<Trained> all;
  for (const Method method : kDemoMethods) all.push_back(train_with(corpus, settings, method));
  const DeviceKind device = settings.loss.caps.kind;
  write_out("\n" + training_table(all, device) + columns_text(device));
  bool good = true;
  for (const Trained& one : all) {
    good &= equal_digits(one.first_loss, all.front().first_loss) >= kMinDigitsStep;
    good &= equal_digits(one.last_loss, all.front().last_loss) >= kMinDigitsTrained;
    good &= one.last_valid < one.first_valid;
    good &= one.used_bytes == one.extra_bytes;
  }
  std::string times;
  for (const Trained& one : all) {
    times +=
        fmt::format("{}{} {:.1f} s", times.empty() ? "" : ", ", name_of(one.method), one.seconds);
  }
  write_out(fmt::format("This part took {:.1f} s: {}.\n", clock.seconds(), times));
  return good;
}

}  // namespace

int run_demo(const Corpus& corpus, const DemoSettings& settings) {
  const Clock clock;
  bool good = training_part(corpus, settings.train);
  const double trained = clock.seconds();
  good &= head_part(Dtype::kF32, settings.train.loss.caps, true);
  const double head_seconds = clock.seconds() - trained;
  if (clock.seconds() + head_seconds < settings.seconds_limit) {
    const bool is_fast = settings.train.loss.caps.kind == DeviceKind::kCuda;
    good &= head_part(Dtype::kBF16, settings.train.loss.caps, is_fast);
  } else {
    write_out(
        "\nThe same step in bf16 is left out: this machine is slow, and the demo should end "
        "in three minutes.\n");
  }
  write_out(fmt::format("\nAll of it took {:.1f} s. {}\n", clock.seconds(),
                        good ? "All methods gave the same losses."
                             : "Some losses or bytes differ more than they should."));
  return good ? 0 : 1;
}

}  // namespace flce::cli
