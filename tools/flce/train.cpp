// SPDX-License-Identifier: Apache-2.0
// `flce train`: a small causal language model on a text file, its loss computed by any method.
#include <fmt/core.h>

#include <CLI/CLI.hpp>
#include <chrono>
#include <cmath>
#include <functional>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "calibration.hpp"
#include "commands.hpp"
#include "common.hpp"
#include "run_shared.hpp"
#include "train_demo.hpp"
#include "train_loop.hpp"
#include "train_text.hpp"

namespace flce::cli {
namespace {

constexpr const char* kFooter =
    "The model: embeddings of the last tokens, joined, one linear layer with GELU, and a head "
    "over\n"
    "the text's words; AdamW with warm-up. Text: plain ASCII or UTF-8, '-' for standard input;\n"
    "verse labels such as 'Ge1:1' are removed.\n"
    "--device says where the loss and its gradients are computed (auto: the first CUDA card, "
    "where\n"
    "there is none the CPU); everything else is computed on the CPU, with --threads.\n"
    "--save writes embed, linear, linear_bias, head, head_bias (f32), the words in the metadata.\n"
    "\n"
    "Examples:\n"
    "  bible -f Gen1:1-Rev22:21 > bible.txt && flce train bible.txt\n"
    "  flce train bible.txt --method recompute --chunk 128 --steps 500 --save model.safetensors\n"
    "  flce train bible.txt --dtype bf16 --vocab 8000 --hidden 256\n"
    "  flce train bible.txt --dtype bf16 --device cuda\n"
    "  flce train bible.txt --demo         # every method in turn, then a head of real size\n"
    "Exit code: 0 fine, 1 the demo's losses differ, 2 wrong usage or input.";

struct TrainOptions {
  std::string text;
  std::int64_t max_vocab = 0;
  std::string method = "auto";
  std::string dtype = "f32";
  ChunkChoice chunk;
  RouteChoice route;
  TrainSettings settings;
  DeviceChoice device;
  std::string save;
  bool demo = false;
  bool json = false;
};

using Clock = std::chrono::steady_clock;

std::string corpus_text(const Corpus& corpus) {
  const auto count = static_cast<std::int64_t>(corpus.tokens.size());
  const double known =
      100.0 * static_cast<double>(count - corpus.unknown_tokens) / static_cast<double>(count);
  return fmt::format(
      "text      {} words and marks, {} distinct{}\n"
      "vocab     {} with <unk>, {:.2f} % of the text; a uniform guess has loss ln V = {:.3f}\n",
      format_count(count), format_count(corpus.distinct_words),
      corpus.stripped_verse_labels ? " (verse labels removed)" : "", format_count(corpus.vocab()),
      known, std::log(static_cast<double>(corpus.vocab())));
}

std::string model_text(Trainer& trainer, const TrainOptions& options) {
  const ModelShape& shape = trainer.model().shape();
  const Plan& plan = trainer.loss_step().plan();
  return fmt::format(
      "model     context {}, embed {}, hidden {}: {} parameters\n"
      "loss      {}, {} tokens in chunks of {} ({}), {}, {}; predicted extra memory {}\n",
      shape.context, shape.embed, shape.hidden, format_count(trainer.num_parameters()),
      name_of(plan.method), options.settings.batch, plan.chunk, plan.num_chunks,
      name_of(plan.problem.dtype), device_text(plan.caps), format_bytes(plan.extra_bytes));
}

std::string point_text(const TrainPoint& point) {
  if (point.step == 0)
    return fmt::format("step {:>5}  {:>14}  valid {:.4f}\n", 0, "", point.valid_loss);
  return fmt::format("step {:>5}  train {:>8.4f}  valid {:.4f}  {} a step\n", point.step,
                     point.train_loss, point.valid_loss, format_seconds(point.seconds_per_step));
}

nlohmann::ordered_json summary(const TrainOptions& options, const Corpus& corpus, Trainer& trainer,
                               const std::vector<TrainPoint>& points, double seconds) {
  const LossStep& step = trainer.loss_step();
  nlohmann::ordered_json document{{"method", name_of(step.plan().method)},
                                  {"chunk", step.plan().chunk},
                                  {"dtype", name_of(step.plan().problem.dtype)},
                                  {"device", name_of(step.plan().caps.kind)},
                                  {"tokens", corpus.tokens.size()},
                                  {"distinct_words", corpus.distinct_words},
                                  {"vocab", corpus.vocab()},
                                  {"parameters", trainer.num_parameters()},
                                  {"seed", options.settings.seed},
                                  {"steps", options.settings.steps},
                                  {"first_loss", trainer.first_loss()},
                                  {"last_loss", trainer.last_loss()},
                                  {"extra_bytes", step.plan().extra_bytes},
                                  {"used_bytes", step.used_bytes()},
                                  {"loss_step_seconds", trainer.median_loss_seconds()},
                                  {"seconds", seconds}};
  document["points"] = nlohmann::ordered_json::array();
  for (const TrainPoint& point : points) {
    document["points"].push_back(
        {{"step", point.step}, {"train_loss", point.train_loss}, {"valid_loss", point.valid_loss}});
  }
  return document;
}

void print_end(const TrainOptions& options, const Trainer& trainer, double seconds) {
  const LossStep& step = trainer.loss_step();
  if (options.settings.steps > 0) {
    write_out(fmt::format("memory    of the loss step: predicted {}, measured {}\n",
                          format_bytes(step.plan().extra_bytes), format_bytes(step.used_bytes())));
  }
  write_out(fmt::format("time      {:.1f} s, of it loss steps {:.1f} s (median {})\n", seconds,
                        trainer.loss_seconds(), format_seconds(trainer.median_loss_seconds())));
}

int train_once(const TrainOptions& options, const Corpus& corpus) {
  const Clock::time_point start = Clock::now();
  Trainer trainer(corpus, options.settings);
  const auto say = [&](const std::string& text) {
    if (!options.json) write_out(text);
  };
  say(corpus_text(corpus) + model_text(trainer, options));
  std::vector<TrainPoint> points;
  Progress progress("train");
  trainer.train(
      [&](const TrainPoint& point) {
        points.push_back(point);
        progress.clear();
        say(point_text(point));
      },
      [&](std::int64_t step) { progress.update(step, options.settings.steps, ""); });
  progress.clear();
  const double seconds = std::chrono::duration<double>(Clock::now() - start).count();
  if (!options.save.empty()) trainer.save(options.save);
  if (options.json) {
    write_out(summary(options, corpus, trainer, points, seconds).dump(2) + "\n");
  } else {
    print_end(options, trainer, seconds);
    if (!options.save.empty()) write_out(fmt::format("saved     {}\n", options.save));
  }
  return 0;
}

void finish_settings(TrainOptions& options) {
  LossSettings& loss = options.settings.loss;
  loss.dtype = real_dtype_of(options.dtype);
  // Threads are the trunk's as well: with a card they say how many the CPU uses for that.
  DeviceChoice device = options.device;
  if (parse_device(device.device).kind == DeviceKind::kCuda) device.threads = 0;
  loss.caps = calibrated(caps_of_choice(device), loss.dtype);
  options.settings.num_threads = threads_of_choice(options.device);
  loss.request.method = method_of(options.method);
  set_chunk(loss.request, options.chunk);
  set_route(loss.request, options.route);
}

// The demo sets what the user did not: chunks of an eighth of the batch, so that each method's
// memory shows.
void finish_demo(const CLI::App& command, TrainOptions& options) {
  TrainSettings& settings = options.settings;
  if (command.count("--steps") == 0) settings.steps = 60;
  if (command.count("--eval-every") == 0) settings.eval_every = 15;
  if (!options.chunk.is_given()) {
    settings.loss.request.chunk = std::max<std::int64_t>(1, settings.batch / 8);
  }
  if (options.method != "auto" || !options.save.empty() || options.json) {
    throw Error(ErrorCode::kInvalidArgument,
                "--demo trains with every method: leave out --method, --save and --json");
  }
}

int train(TrainOptions options, const CLI::App& command) {
  finish_settings(options);
  if (options.demo) finish_demo(command, options);
  require_writable("--save", options.save);
  require_apart("--save", options.save, options.text);
  const Corpus corpus = read_corpus(options.text, options.max_vocab,
                                    Trainer::min_tokens(options.settings.shape.context));
  if (!options.demo) return train_once(options, corpus);
  write_out(corpus_text(corpus));
  return run_demo(corpus, {options.settings});
}

void add_model_options(CLI::App& command, TrainOptions& options) {
  TrainSettings& s = options.settings;
  const auto whole = [&](const char* name, std::int64_t& value, const char* help) {
    command.add_option(name, value, help)
        ->transform(whole_number(1, 1'000'000))
        ->capture_default_str();
  };
  whole("--context", s.shape.context, "Tokens that the model sees");
  whole("--embed", s.shape.embed, "Size of a token's embedding");
  whole("--hidden", s.shape.hidden, "Size H of the hidden state");
  command
      .add_option("--vocab", options.max_vocab,
                  "Most frequent words to keep, <unk> included (default: all)")
      ->transform(whole_number(2, 100'000'000));
  command.add_option("--steps", s.steps, "Training steps")
      ->transform(whole_number(0, 100'000'000))
      ->capture_default_str();
  whole("--batch", s.batch, "Tokens of a step");
  command.add_option("--lr", s.learning_rate, "Learning rate at its highest")
      ->check(more_than_zero())
      ->capture_default_str();
  command.add_option("--warmup", s.warmup, "Steps over which the learning rate rises")
      ->transform(whole_number(0))
      ->capture_default_str();
  command.add_option("--weight-decay", s.optimizer.weight_decay, "Of the matrices")
      ->check(zero_or_more())
      ->capture_default_str();
  command.add_option("--seed", s.seed, "The same seed gives the same losses")
      ->transform(seed_number())
      ->capture_default_str();
  command
      .add_option("--eval-every", s.eval_every,
                  "Steps between validations (0: only before and after)")
      ->transform(whole_number(0))
      ->capture_default_str();
}

}  // namespace

Command add_train(CLI::App& app) {
  CLI::App* command =
      app.add_subcommand("train", "Train a small language model on a text, with any method");
  const auto options = std::make_shared<TrainOptions>();
  command->add_option("text", options->text, "A text file, or - for standard input")
      ->required()
      ->type_name("TEXT");
  add_model_options(*command, *options);
  PlanRequest& request = options->settings.loss.request;
  command->add_option("--method", options->method, "auto, naive, chunked, fused or recompute")
      ->capture_default_str();
  add_chunk_option(*command, options->chunk);
  add_bytes_option(*command, "--budget", request.budget_bytes,
                   "Hard limit of the loss step's extra memory, such as 20MiB");
  command->add_option("--dtype", options->dtype, "Of the loss step")
      ->check(CLI::IsMember({"f32", "bf16", "f16"}))
      ->capture_default_str();
  add_route_options(*command, options->route);
  add_device_options(*command, options->device);
  command->add_option("--save", options->save, "Write the weights as .safetensors")
      ->type_name("FILE");
  command->add_flag("--demo", options->demo, "Every method in turn, then a head of real size");
  add_json_flag(*command, options->json);
  command->footer(kFooter);
  return {command, [options, command] { return train(*options, *command); }};
}

}  // namespace flce::cli
