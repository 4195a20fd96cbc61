// SPDX-License-Identifier: Apache-2.0
// `flce run`: loss and gradients of tensors in files. The results appear whole or not at all.
#include <fmt/core.h>

#include <charconv>
#include <cmath>
#include <cstring>
#include <filesystem>
#include <memory>
#include <nlohmann/json.hpp>
#include <set>
#include <string>
#include <system_error>
#include <utility>
#include <vector>

#include "commands.hpp"
#include "common.hpp"
#include "io/npy.hpp"
#include "io/safetensors.hpp"
#include "io/text.hpp"
#include "run_input.hpp"
#include "run_options.hpp"
#include "run_outputs.hpp"
#include "run_shared.hpp"
#include "run_step.hpp"
#include "verify_numbers.hpp"

namespace flce::cli {
namespace {

[[noreturn]] void refuse(const std::string& text) {
  throw Error(ErrorCode::kInvalidArgument, text);
}

std::int64_t parse_topk(std::string_view word) {
  constexpr std::string_view kPrefix = "topk=";
  std::int64_t k = 0;
  const char* begin = word.data() + kPrefix.size();
  const char* end = word.data() + word.size();
  const auto [stop, error] = std::from_chars(begin, end, k);
  if (word.substr(0, kPrefix.size()) != kPrefix || error != std::errc{} || stop != end || k < 1) {
    refuse(fmt::format("--outputs '{}': write topk=K with a number K of at least 1", word));
  }
  return k;
}

Wants wants_of(const RunOptions& run_options, const InputFiles& files) {
  Wants wants;
  wants.grad_hidden = !run_options.no_grad_hidden;
  wants.grad_weight = !run_options.no_grad_weight;
  wants.grad_bias = files.find("bias") != nullptr && !run_options.no_grad_bias;
  const std::pair<const char*, bool*> switches[] = {{"lse", &wants.lse},
                                                    {"logprob", &wants.logprob},
                                                    {"entropy", &wants.entropy},
                                                    {"argmax", &wants.argmax},
                                                    {"z_loss", &wants.z_loss},
                                                    {"num_correct", &wants.num_correct},
                                                    {"num_valid", &wants.num_valid}};
  std::set<std::string> named;
  for (const std::string& word : run_options.outputs) {
    const std::string subject = word.substr(0, word.find('='));
    if (!named.insert(subject).second) {
      refuse(fmt::format("--outputs names {} twice; leave out one of them", subject));
    }
    bool found = false;
    for (const auto& [name, field] : switches) {
      if (word != name) continue;
      *field = true;
      found = true;
    }
    if (found) continue;
    if (subject != "topk") {
      refuse(
          fmt::format("unknown output '{}'; known: lse, logprob, entropy, argmax, topk=K, "
                      "z_loss, num_correct, num_valid",
                      word));
    }
    wants.topk = parse_topk(word);
  }
  return wants;
}

Options options_of(const RunOptions& run_options, const InputFiles& files) {
  Options options = run_options.options;
  options.sequence_length = run_options.sequence_length.value_or(0);
  const bool has_tensor = files.find("normalizer") != nullptr;
  if (has_tensor && options.has_normalizer) {
    refuse("--normalizer and a tensor 'normalizer' were both given; one of them is enough");
  }
  if (files.find("temperature") != nullptr && options.temperature != 1.0) {
    refuse("--temperature and a tensor 'temperature' were both given; one of them is enough");
  }
  if (!run_options.reduction.empty()) {
    options.reduction = reduction_of(run_options.reduction);
  } else if (options.has_normalizer || has_tensor) {
    options.reduction = Reduction::kSum;
  }
  return options;
}

// The element type of an accumulated gradient is its starting values'.
Dtype start_dtype(const InputFiles& files, const char* name, Dtype otherwise) {
  const io::TensorView* start = files.find(name);
  return start == nullptr ? otherwise : start->dtype;
}

// Sizes and types of the outputs, before the library has checked anything.
Problem sketch_of(const RunOptions& run_options, const InputFiles& files, const Inputs& inputs,
                  const Options& options) {
  Problem problem;
  problem.tokens = inputs.hidden.rows;
  problem.hidden = inputs.hidden.cols;
  problem.vocab = inputs.weight.rows;
  problem.dtype = inputs.hidden.dtype;
  problem.bias_dtype = inputs.bias.dtype;
  problem.options = options;
  problem.wants = wants_of(run_options, files);
  problem.grad_weight_dtype =
      start_dtype(files, "grad_weight", run_options.grad_weight_f32 ? Dtype::kF32 : problem.dtype);
  if (run_options.grad_weight_f32 && problem.grad_weight_dtype != Dtype::kF32) {
    refuse(
        fmt::format("--grad-weight-f32 contradicts tensor 'grad_weight', whose starting values are "
                    "{}; leave out one, or give them in f32",
                    name_of(problem.grad_weight_dtype)));
  }
  problem.grad_bias_dtype = start_dtype(files, "grad_bias", problem.bias_dtype);
  return problem;
}

// Whether there is a starting value of an output of `sketch`, which it must fit.
bool has_start(const InputFiles& files, const char* name, const Problem& sketch) {
  const io::TensorView* start = files.find(name);
  if (start == nullptr) return false;
  for (const OutputShape& output : output_shapes(sketch)) {
    if (output.name != name) continue;
    const io::Shape shape = shape_of(output);
    if (shape == start->shape) return true;
    refuse(fmt::format("tensor '{}' has shape {}; the gradient has {}", name,
                       io::shape_text(start->shape), io::shape_text(shape)));
  }
  refuse(
      fmt::format("tensor '{}' holds starting values of a gradient that was not asked for; "
                  "leave it out, or ask for the gradient",
                  name));
}

void load_start(const InputFiles& files, const char* name, const OutputTensors& outputs) {
  const io::TensorView* start = files.find(name);
  if (start == nullptr) return;
  std::memcpy(outputs.find(name)->data(), start->bytes.data(), start->bytes.size());
}

InputFiles load(const RunOptions& run_options) {
  if (!run_options.input.empty()) {
    if (!run_options.npy.empty()) {
      refuse("--input and .npy files were both given; a .safetensors file holds all tensors");
    }
    require_apart("--output", run_options.output, run_options.input);
    return InputFiles::from_safetensors(run_options.input);
  }
  for (const char* needed : {"hidden", "weight", "target"}) {
    if (!run_options.npy.contains(needed)) {
      refuse(
          fmt::format("--{} is missing; give --input FILE.safetensors, or --hidden, --weight "
                      "and --target .npy files",
                      needed));
    }
  }
  return InputFiles::from_npy(run_options.npy);
}

// With .npy inputs a name that ends in .safetensors is a file, any other a folder.
bool writes_folder(const RunOptions& run_options) {
  return run_options.input.empty() && !run_options.output.ends_with(".safetensors");
}

void check_output_name(const RunOptions& run_options) {
  if (run_options.output.ends_with(".npy") || run_options.output.ends_with(".npz")) {
    refuse(fmt::format("--output {}: the results are several tensors; name a .safetensors file{}",
                       run_options.output,
                       run_options.input.empty() ? ", or a folder for one .npy file each" : ""));
  }
  require_writable("--output", run_options.output, writes_folder(run_options));
}

// That no file that will be written stands in for one that was read, or cannot be written.
void check_output_files(const RunOptions& run_options, const Problem& sketch) {
  std::vector<std::pair<std::string_view, std::string>> files;
  for (const OutputShape& shape : output_shapes(sketch)) {
    files.emplace_back(shape.name, run_options.output + "/" + std::string(shape.name) + ".npy");
  }
  if (!writes_folder(run_options)) files = {{"", run_options.output}};
  for (const auto& [tensor, path] : files) {
    std::error_code error;
    if (std::filesystem::exists(path, error)) require_writable("--output", path);
    for (const auto& [name, input] : run_options.npy) {
      // A gradient that is added to may stand where its start did.
      if (name != tensor) require_apart("--output", path, input);
    }
  }
}

void save(const RunOptions& run_options, const OutputTensors& outputs, const Plan& plan) {
  const std::vector<io::TensorView> tensors = outputs.tensors();
  if (writes_folder(run_options)) {
    io::write_npy_folder(run_options.output, tensors);
    return;
  }
  io::write_safetensors(run_options.output, tensors,
                        {{"problem", format_problem(plan.problem)},
                         {"method", name_of(plan.method)},
                         {"chunk", std::to_string(plan.chunk)},
                         {"flce", version()}});
}

// The reduced loss, or the sum over all tokens.
double total_loss(const VectorView& loss) {
  double sum = 0.0;
  for (std::int64_t i = 0; i < loss.size; ++i) sum += load_number(loss.dtype, loss.data, i);
  return sum;
}

void print_summary(const RunOptions& run_options, const Step& step, const OutputTensors& outputs) {
  const Plan& plan = step.plan();
  const bool is_vector = plan.problem.options.reduction == Reduction::kNone;
  const double loss = total_loss(outputs.views().loss);
  if (run_options.json) {
    nlohmann::ordered_json document{{"problem", format_problem(plan.problem)},
                                    {"method", name_of(plan.method)},
                                    {"device", name_of(plan.caps.kind)},
                                    {"chunk", plan.chunk},
                                    {"num_chunks", plan.num_chunks},
                                    {is_vector ? "loss_sum" : "loss", loss},
                                    {"extra_bytes", plan.extra_bytes},
                                    {"used_bytes", step.used_bytes()},
                                    {"peak_bytes", plan.peak_bytes},
                                    {"seconds", step.seconds()},
                                    {"output", run_options.output},
                                    {"tensors", nlohmann::ordered_json::array()}};
    for (const io::TensorView& tensor : outputs.tensors())
      document["tensors"].push_back(tensor.name);
    write_out(document.dump(2) + "\n");
  } else if (!run_options.quiet) {
    write_out(
        fmt::format("{}, chunk {} ({} chunks), {}: {} {:.8g}, extra memory {} ({} bytes), {}\n",
                    name_of(plan.method), plan.chunk, plan.num_chunks, device_text(plan.caps),
                    is_vector ? "sum of losses" : "loss", loss, format_bytes(plan.extra_bytes),
                    plan.extra_bytes, format_seconds(step.seconds())));
  }
}

PlanRequest request_of(const RunOptions& run_options) {
  PlanRequest request;
  request.method = method_of(run_options.method);
  set_chunk(request, run_options.chunk);
  request.budget_bytes = run_options.budget_bytes;
  set_route(request, run_options.route);
  return request;
}

int run_files(const RunOptions& run_options) {
  check_run_options(run_options);
  const PlanRequest request = request_of(run_options);
  const DeviceCaps caps = caps_of_choice(run_options.device);
  check_output_name(run_options);
  const InputFiles files = load(run_options);
  const Inputs inputs = files.inputs();
  const Options options = options_of(run_options, files);
  const Problem sketch = sketch_of(run_options, files, inputs, options);
  check_output_files(run_options, sketch);
  const bool accumulate = has_start(files, "grad_weight", sketch);
  const bool accumulate_bias = has_start(files, "grad_bias", sketch);
  const Problem problem =
      problem_of(inputs, views_without_memory(sketch), options, accumulate, accumulate_bias);
  Step step(flce::plan(problem, caps, request));
  OutputTensors outputs(problem);
  load_start(files, "grad_weight", outputs);
  load_start(files, "grad_bias", outputs);
  step.execute(inputs, outputs.views());
  save(run_options, outputs, step.plan());
  print_summary(run_options, step, outputs);
  return 0;
}

}  // namespace

Command add_run(CLI::App& app) {
  const auto options = std::make_shared<RunOptions>();
  CLI::App* command = add_run_options(app, *options);
  return {command, [options] { return run_files(*options); }};
}

}  // namespace flce::cli
