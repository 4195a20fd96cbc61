// SPDX-License-Identifier: Apache-2.0
// `flce tune`: what cuBLASLt's candidates for a problem's products cost on the card at hand, and
// the best ones as rows of the table in src/cuda/choices.cpp.
#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <array>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "calibration.hpp"
#include "commands.hpp"
#include "common.hpp"
#include "flce/device.hpp"

namespace flce::cli {
namespace {

constexpr const char* kFooter =
    R"(Examples:
  flce tune --tokens 4096 --hidden 4096 --vocab 128256 --dtype bf16
  flce tune --tokens 4096 --hidden 2048 --vocab 32000 --dtype f32 --rounds 20 --device cuda:1

--tokens are those of one chunk. The candidates of a product are timed in turn, so that a slow
minute of the card hits all. Under the table stand the best ones as rows for the table of choices
in src/cuda/choices.cpp: what a run takes instead of cuBLASLt's first candidate. Let nothing
else run on the card meanwhile. Exit codes: 0 fine, 2 wrong usage, or no card.)";

struct TuneOptions {
  std::optional<std::int64_t> tokens, hidden, vocab;
  std::string dtype = "bf16";
  int rounds = 10;
  std::string device = "cuda";
};

// The words of the table of choices for what tune_products calls the same.
constexpr std::array<std::pair<std::string_view, std::string_view>, 4> kProducts{
    {{"logits", "Product::kLogits"},
     {"grad_hidden", "Product::kGradHidden"},
     {"grad_weight", "Product::kGradWeight"},
     {"grad_weight_acc", "Product::kGradWeightAcc"}}};

std::string_view product_word(std::string_view name) {
  for (const auto& [product, word] : kProducts) {
    if (product == name) return word;
  }
  throw Error(ErrorCode::kInternal, fmt::format("the table has no product '{}'", name));
}

// The candidates of one product, in cuBLASLt's order.
using Candidates = std::vector<const TunedProduct*>;

std::vector<Candidates> by_product(const std::vector<TunedProduct>& all) {
  std::vector<Candidates> groups;
  for (const TunedProduct& one : all) {
    if (groups.empty() || groups.back().front()->product != one.product) groups.emplace_back();
    groups.back().push_back(&one);
  }
  return groups;
}

const TunedProduct& best_of(const Candidates& candidates) {
  const TunedProduct* best = candidates.front();
  for (const TunedProduct* one : candidates) {
    if (one->seconds < best->seconds) best = one;
  }
  return *best;
}

std::string table_text(const std::vector<Candidates>& groups) {
  Table table({"product", "rank", "tile", "cluster", "ms", "to rank 0", ""});
  for (const Candidates& candidates : groups) {
    const TunedProduct& best = best_of(candidates);
    for (const TunedProduct* one : candidates) {
      table.add({one->product, std::to_string(one->rank), one->tile, one->cluster,
                 fmt::format("{:.3f}", 1e3 * one->seconds),
                 fmt::format("{:.3f}", one->seconds / candidates.front()->seconds),
                 one == &best ? "best" : ""});
    }
  }
  return table.text();
}

// One initialiser for each product.
std::string rows_text(const std::vector<Candidates>& groups, const DeviceCaps& caps,
                      std::int64_t tokens, std::int64_t vocab) {
  std::string text;
  const std::string date = date_now().substr(0, 10);
  for (const Candidates& candidates : groups) {
    const TunedProduct& best = best_of(candidates);
    text += fmt::format(
        "    Choice{{\"{}\", {}, {}, {}, \"{}\", \"{}\", {}, {}}},  // {:.2f}, {:.2f}, {}\n",
        caps.name.data(), product_word(best.product), tokens, vocab, best.tile, best.cluster,
        best.tile_id, best.cluster_id, 1e3 * best.seconds, 1e3 * candidates.front()->seconds, date);
  }
  return text;
}

std::string pass_text(const RowPass& pass) {
  return fmt::format(
      "the pass over the logits: {:.3f} ms by one kernel ({:.0f} % of a copy's {:.0f} GB/s), "
      "{:.3f} ms "
      "by two",
      1e3 * pass.fused_seconds, 1e2 * pass.share(), 1e-9 * pass.copy_bytes_per_second,
      1e3 * pass.apart_seconds);
}

std::int64_t size_of_option(const char* name, const std::optional<std::int64_t>& value) {
  if (value.value_or(0) >= 1) return *value;
  throw Error(
      ErrorCode::kInvalidArgument,
      fmt::format("{} {}: a product has at least 1 row and column", name, value.value_or(0)));
}

int tune(const TuneOptions& options) {
  const Dtype dtype = real_dtype_of(options.dtype);
  const std::int64_t tokens = size_of_option("--tokens", options.tokens);
  const std::int64_t hidden = size_of_option("--hidden", options.hidden);
  const std::int64_t vocab = size_of_option("--vocab", options.vocab);
  const DeviceCaps caps = device_to_run_on(options.device);
  if (caps.kind != DeviceKind::kCuda) {
    throw Error(ErrorCode::kInvalidArgument,
                fmt::format("--device {}: {}", options.device,
                            has_cuda() ? "the products of a CUDA card are tuned; give --device cuda"
                                       : cuda_refusal()));
  }
  Progress progress("tune");
  progress.update(0, 0, "timing cuBLASLt's candidates");
  const std::vector<TunedProduct> all = tune_products(tokens, hidden, vocab, dtype, options.rounds);
  progress.update(0, 0, "timing the pass over the logits");
  const RowPass pass = measure_row_pass(tokens, vocab, dtype, options.rounds);
  progress.clear();
  const std::vector<Candidates> groups = by_product(all);
  write_out(
      fmt::format("{}: {} tokens x {} hidden x {} vocab, {}, median of {} rounds\n{}\n"
                  "{}\n\nRows for src/cuda/choices.cpp:\n{}",
                  caps.name.data(), format_count(tokens), format_count(hidden), format_count(vocab),
                  name_of(dtype), options.rounds, table_text(groups), pass_text(pass),
                  rows_text(groups, caps, tokens, vocab)));
  return 0;
}

}  // namespace

Command add_tune(CLI::App& app) {
  CLI::App* command =
      app.add_subcommand("tune", "Time the candidates for the matrix products of a CUDA card");
  const auto options = std::make_shared<TuneOptions>();
  add_count_option(*command, "--tokens", options->tokens, "tokens of one chunk")
      ->required()
      ->type_name("C");
  add_count_option(*command, "--hidden", options->hidden, "hidden size (H)")
      ->required()
      ->type_name("H");
  add_count_option(*command, "--vocab", options->vocab, "vocabulary (V)")
      ->required()
      ->type_name("V");
  command->add_option("--dtype", options->dtype, "Of the products")
      ->check(CLI::IsMember({"f32", "bf16", "f16"}))
      ->capture_default_str();
  command->add_option("--rounds", options->rounds, "Timed rounds")
      ->transform(whole_number(1, 10'000))
      ->capture_default_str();
  add_device_option(*command, options->device);
  command->footer(kFooter);
  return {command, [options] { return tune(*options); }};
}

}  // namespace flce::cli
