// SPDX-License-Identifier: Apache-2.0
#include "plan_input.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <limits>
#include <string_view>

#include "calibration.hpp"
#include "common.hpp"
#include "flce/device.hpp"
#include "io/model_config.hpp"

namespace flce::cli {
namespace {

template <typename... Args>
void require(bool holds, fmt::format_string<Args...> format, Args&&... args) {
  if (holds) return;
  throw Error(ErrorCode::kInvalidArgument, fmt::format(format, std::forward<Args>(args)...));
}

template <std::size_t Size>
bool is_one_of(std::string_view word, const std::array<std::string_view, Size>& words) {
  return std::find(words.begin(), words.end(), word) != words.end();
}

// --- sizes ---------------------------------------------------------------------------------------

std::int64_t tokens_of(const PlanOptions& o) {
  const bool by_sequences = o.sequences || o.sequence_length;
  require(o.tokens || by_sequences,
          "how many tokens has a step? Give --tokens N, or --sequences B --sequence-length L");
  require(!by_sequences || (o.sequences && o.sequence_length),
          "--sequences and --sequence-length only mean something together");
  if (!by_sequences) return *o.tokens;
  require(*o.sequences >= 0 && *o.sequence_length >= 0,
          "--sequences {} and --sequence-length {}: neither may be negative", *o.sequences,
          *o.sequence_length);
  std::int64_t product = 0;
  require(!__builtin_mul_overflow(*o.sequences, *o.sequence_length, &product),
          "{} sequences of {} tokens are more tokens than 64 bits can count", *o.sequences,
          *o.sequence_length);
  require(!o.tokens || *o.tokens == product,
          "--tokens {} contradicts {} sequences of {} tokens, which are {}; leave out one of them",
          o.tokens.value_or(0), *o.sequences, *o.sequence_length, product);
  return product;
}

// hidden or vocab: from its option, from the model, or from both if they agree.
std::int64_t size_of_head(const char* option, const std::optional<std::int64_t>& given,
                          std::int64_t from_model, const std::string& source) {
  if (source.empty()) {
    require(given.has_value(),
            "{} is missing: give --hidden H and --vocab V, or --preset, or --config config.json",
            option);
    return *given;
  }
  require(!given || *given == from_model, "{} {} contradicts {}, which says {}; leave out one",
          option, given.value_or(0), source, from_model);
  return from_model;
}

// --- models --------------------------------------------------------------------------------------

constexpr std::array<std::string_view, 9> kPlainMlp{
    "gpt2", "gpt_neox", "gptj", "gpt_bigcode", "gpt_neo", "opt", "bloom", "falcon", "phi"};
constexpr std::array<std::string_view, 4> kLearnedPositions{"gpt2", "gpt_neo", "gpt_bigcode",
                                                            "opt"};
constexpr std::array<std::string_view, 8> kTiedUnlessSaid{
    "gpt2", "gpt_neo", "gpt_bigcode", "opt", "gemma", "gemma2", "gemma3", "gemma3_text"};

bool has_experts(std::string_view type) {
  return type.find("moe") != std::string_view::npos || type == "mixtral" || type == "dbrx" ||
         type.substr(0, 8) == "deepseek" || type == "gpt_oss" || type == "llama4_text";
}

// What the step's memory follows from, or why the file does not say it.
void model_of(const io::ModelConfig& config, const std::string& name, PlanQuestion& question) {
  std::string missing;
  const auto need = [&](const char* field, const std::optional<std::int64_t>& value) {
    if (!value) missing += (missing.empty() ? "" : ", ") + std::string(field);
  };
  need("num_hidden_layers", config.num_hidden_layers);
  need("num_attention_heads", config.num_attention_heads);
  const std::string_view type = config.model_type;
  if (has_experts(type)) {
    question.model_note = fmt::format(
        "{}: '{}' is a mixture of experts, whose memory is not modelled; only its head is used",
        name, type);
    return;
  }
  if (!missing.empty()) {
    question.model_note =
        fmt::format("{}: without {} the model's own memory is unknown", name, missing);
    return;
  }
  ModelShape m;
  m.name = name;
  m.layers = *config.num_hidden_layers;
  m.hidden = config.hidden_size;
  m.heads = *config.num_attention_heads;
  m.kv_heads = config.num_key_value_heads.value_or(m.heads);
  m.head_dim = config.head_dim.value_or(std::max<std::int64_t>(m.hidden / m.heads, 1));
  m.intermediate = config.intermediate_size.value_or(4 * m.hidden);
  m.vocab = config.vocab_size;
  m.gated_mlp = !is_one_of(type, kPlainMlp);
  if (is_one_of(type, kLearnedPositions)) m.positions = config.max_position_embeddings.value_or(0);
  m.tied = config.tie_word_embeddings.value_or(is_one_of(type, kTiedUnlessSaid));
  m.softcap = config.final_logit_softcapping.value_or(0.0);
  count_parameters(m);  // refuses sizes that make no sense
  question.model = m;
}

void read_head(const PlanOptions& o, PlanQuestion& question) {
  Problem& p = question.problem;
  require(!(o.preset && o.config), "--preset and --config both name a model; leave out one");
  std::string source;
  Dtype dtype = Dtype::kBF16;
  if (o.preset) {
    question.model = model_preset(*o.preset);
    source = "--preset " + *o.preset;
    p.hidden = question.model->hidden;
    p.vocab = question.model->vocab;
    p.options.softcap = question.model->softcap;
  } else if (o.config) {
    const io::ModelConfig config = io::read_model_config(*o.config);
    source = "--config " + *o.config;
    p.hidden = config.hidden_size;
    p.vocab = config.vocab_size;
    p.options.softcap = config.final_logit_softcapping.value_or(0.0);
    p.options.scale = config.scale();
    dtype = config.dtype.value_or(dtype);
    model_of(config, *o.config, question);
  }
  p.hidden = size_of_head("--hidden", o.hidden, p.hidden, source);
  p.vocab = size_of_head("--vocab", o.vocab, p.vocab, source);
  p.dtype = o.dtype ? real_dtype_of(*o.dtype) : dtype;
}

// --- the rest ------------------------------------------------------------------------------------

void read_text(const PlanOptions& o, PlanQuestion& question) {
  require(!(o.tokens || o.sequences || o.sequence_length || o.hidden || o.vocab || o.dtype ||
            o.preset || o.config || o.grad_weight || o.method || o.chunk.is_given() ||
            o.budget_bytes > 0 || o.route.is_given()),
          "the problem text '{}' holds the problem and the request; leave out the options that say "
          "the same (words such as method=fused, chunk=512, budget=2GiB, tf32 go into the text)",
          o.text);
  const ProblemText parsed = parse_problem(o.text);
  question.problem = parsed.problem;
  question.request = parsed.request;
}

void read_request(const PlanOptions& o, PlanRequest& request) {
  request.method = o.method ? method_of(*o.method) : Method::kAuto;
  set_chunk(request, o.chunk);
  request.budget_bytes = o.budget_bytes;
  set_route(request, o.route);
}

// A card of which only the memory is known.
DeviceCaps described_card() {
  DeviceCaps caps;
  caps.kind = DeviceKind::kCuda;
  constexpr std::string_view kName = "a CUDA card";
  std::copy(kName.begin(), kName.end(), caps.name.begin());
  return caps;
}

// A card that was named or described is planned for; otherwise what a run would take here.
void read_device(const PlanOptions& o, PlanQuestion& question) {
  const Device device = parse_device(o.device);
  require(!(o.device_caps && !device.automatic),
          "--device {} is a device of this machine, --device-caps {} a card that need not be here; "
          "leave out one",
          o.device, o.device_caps.value_or(""));
  DeviceCaps& caps = question.caps;
  const bool names_card = device.kind == DeviceKind::kCuda;
  if (o.device_caps) {
    caps = caps_of(*o.device_caps);
    question.at_hand = false;
  } else if (o.memory_bytes > 0 && (device.automatic || (names_card && !has_cuda()))) {
    caps = described_card();
    question.at_hand = false;
  } else {
    if (names_card && !has_cuda()) {
      throw Error(ErrorCode::kUnsupported,
                  fmt::format("device '{}': {}; --device-caps h200, or another name, plans for a "
                              "card that is not at hand",
                              o.device, cuda_refusal()));
    }
    caps = calibrated(device_to_run_on(o.device), question.problem.dtype);
    // Without --device cpu the question is how many bytes it takes, not whether it fits here.
    if (device.automatic && caps.kind == DeviceKind::kCpu) caps.memory_bytes = 0;
  }
  if (o.memory_bytes > 0) caps.memory_bytes = o.memory_bytes;
}

void read_mode(const PlanOptions& o, PlanQuestion& question) {
  const bool infer = o.mode == "infer";
  require(!(infer && (o.checkpointing || o.shards || o.grad_weight)),
          "--checkpointing, --shards and --grad-weight describe training; leave them out with "
          "--mode infer");
  require(!o.shards || *o.shards >= 1, "--shards {}: at least 1 device holds the model",
          o.shards.value_or(0));
  question.advice.mode = infer ? Mode::kInfer : Mode::kTrain;
  question.advice.checkpointing = o.checkpointing;
  question.advice.shards = o.shards.value_or(1);
  question.advice.sequences = o.sequences.value_or(1);
  if (infer) {
    question.problem.wants.grad_hidden = false;
    question.problem.wants.grad_weight = false;
    question.problem.wants.grad_bias = false;
  }
}

}  // namespace

PlanQuestion plan_question(const PlanOptions& o) {
  PlanQuestion question;
  if (o.text.empty()) {
    question.problem.tokens = tokens_of(o);
    read_head(o, question);
    if (o.grad_weight) question.problem.grad_weight_dtype = real_dtype_of(*o.grad_weight);
    read_request(o, question.request);
  } else {
    read_text(o, question);
  }
  read_mode(o, question);
  read_device(o, question);
  require(question.model || !(o.checkpointing || o.shards),
          "--checkpointing and --shards need a model: --preset NAME or --config config.json{}{}",
          question.model_note.empty() ? "" : "; ", question.model_note);
  return question;
}

}  // namespace flce::cli
