// SPDX-License-Identifier: Apache-2.0
#include "run_options.hpp"

#include <fmt/core.h>

#include <array>
#include <utility>

namespace flce::cli {
namespace {

constexpr const char* kFooter =
    "Tensors: hidden (N,H), weight (V,H), target (N); optional bias (V), class_weight (V),\n"
    "token_weight (N), temperature (N), normalizer (1), grad_output (1) or (N), grad_entropy (N).\n"
    "grad_weight (V,H) and grad_bias (V), if given, are starting values: the gradients are added\n"
    "to them and come out in their element type. F64, F32, BF16, F16; targets I64 or I32.\n"
    "Without grad_output the upstream is 1 (ones for --reduction none).\n"
    "--device auto takes the first CUDA card, where there is none the CPU.\n"
    "Results: loss, grad_hidden, grad_weight, grad_bias and what --outputs names; top-k as\n"
    "topk_logprob and topk_index. With .npy inputs they go to a folder, one file each, unless\n"
    "--output ends in .safetensors.\n"
    "\n"
    "Examples:\n"
    "  flce run --input problem.safetensors --output result.safetensors --softcap 30\n"
    "  flce run --hidden x.npy --weight w.npy --target y.npy --output results --method fused\n"
    "  flce run --input p.safetensors --output r.safetensors --reduction none --outputs "
    "lse,topk=5\n"
    "  flce run --input problem.safetensors --output result.safetensors --device cuda:1\n"
    "Exit code: 0 fine, 2 wrong usage or input (nothing is written then).";

void add_files(CLI::App& command, RunOptions& o) {
  command.add_option("--input", o.input, "A .safetensors file with all tensors");
  const std::array<std::pair<const char*, const char*>, 12> files{{
      {"hidden", "(N,H)"},
      {"weight", "(V,H)"},
      {"target", "(N)"},
      {"bias", "(V)"},
      {"class-weight", "(V)"},
      {"token-weight", "(N)"},
      {"token-temperature", "(N)"},
      {"grad-output", "(1) or (N)"},
      {"grad-entropy", "(N)"},
      {"grad-weight", "(V,H): added to"},
      {"grad-bias", "(V): added to"},
      {"normalizer-file", "(1)"},
  }};
  for (const auto& [option, shape] : files) {
    std::string name = option;
    if (name == "token-temperature") name = "temperature";
    if (name == "normalizer-file") name = "normalizer";
    for (char& c : name) c = c == '-' ? '_' : c;
    command
        .add_option_function<std::string>(
            std::string("--") + option, [&o, name](const std::string& path) { o.npy[name] = path; },
            fmt::format("A .npy file: {} {}", name, shape))
        ->type_name("FILE");
  }
  command
      .add_option("--output", o.output,
                  "Where results go: a .safetensors file, or a folder for .npy files")
      ->required();
}

void add_formula(CLI::App& command, RunOptions& o) {
  Options& options = o.options;
  command.add_option("--reduction", o.reduction,
                     "mean, sum or none (default mean; sum with a normalizer)");
  command
      .add_option("--ignore-index", options.ignore_index, "Targets with this value do not count")
      ->transform(whole_number())
      ->capture_default_str();
  command
      .add_option_function<double>(
          "--normalizer",
          [&options](const double& value) {
            options.normalizer = value;
            options.has_normalizer = true;
          },
          "Divide the sum of losses by this number")
      ->check(finite_number());
  const auto add_number = [&command](const char* name, double& value, const char* text) {
    command.add_option(name, value, text)->check(finite_number());
  };
  add_number("--label-smoothing", options.label_smoothing, "In [0, 1]");
  add_number("--z-loss", options.z_loss, "Weight of the squared log-sum-exp");
  add_number("--softcap", options.softcap, "Logits become softcap * tanh(logit / softcap)");
  add_number("--scale", options.scale, "Multiplies the logits, before bias and softcap");
  add_number("--temperature", options.temperature, "Divides the logits at the end");
  command.add_option("--shift", options.shift, "Token i is trained to predict target[i + shift]")
      ->transform(whole_number());
  add_count_option(command, "--sequence-length", o.sequence_length,
                   "Tokens of one sequence, for --shift (default: all are one)");
}

void add_results(CLI::App& command, RunOptions& o) {
  command
      .add_option("--outputs", o.outputs,
                  "More results: lse,logprob,entropy,argmax,topk=K,z_loss,num_correct,num_valid")
      ->delimiter(',');
  command.add_flag("--no-grad-hidden", o.no_grad_hidden, "Do not compute grad_hidden");
  command.add_flag("--no-grad-weight", o.no_grad_weight, "Do not compute grad_weight");
  command.add_flag("--no-grad-bias", o.no_grad_bias, "Do not compute grad_bias");
  command.add_flag("--grad-weight-f32", o.grad_weight_f32, "grad_weight in f32 for 16-bit inputs");
  command.add_flag("--quiet", o.quiet, "Print nothing");
  add_json_flag(command, o.json);
}

}  // namespace

CLI::App* add_run_options(CLI::App& app, RunOptions& options) {
  CLI::App* command = app.add_subcommand("run", "Loss and gradients of tensors in files");
  add_files(*command, options);
  add_formula(*command, options);
  add_results(*command, options);
  command
      ->add_option("--method", options.method,
                   "auto, naive, chunked, fused, recompute, naive-eager or chunked-eager")
      ->capture_default_str();
  add_chunk_option(*command, options.chunk);
  add_policy_option(*command, options.chunk);
  add_bytes_option(*command, "--budget", options.budget_bytes,
                   "Hard limit of the extra memory, such as 2GiB or 500MB");
  add_route_options(*command, options.route);
  add_device_options(*command, options.device);
  command->footer(kFooter);
  return command;
}

void check_run_options(const RunOptions& options) {
  const auto refuse = [](const std::string& text) {
    throw Error(ErrorCode::kInvalidArgument, text);
  };
  if (options.sequence_length.value_or(0) != 0 && options.options.shift == 0) {
    refuse(
        fmt::format("--sequence-length {} is for --shift K with a K of at least 1; give both "
                    "or neither",
                    *options.sequence_length));
  }
  if (options.quiet && options.json) {
    refuse("--quiet prints nothing and --json a summary; leave out one of them");
  }
  if (options.grad_weight_f32 && options.no_grad_weight) {
    refuse("--grad-weight-f32 is about what --no-grad-weight leaves out; leave out one of them");
  }
}

}  // namespace flce::cli
