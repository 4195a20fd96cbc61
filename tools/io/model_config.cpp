// SPDX-License-Identifier: Apache-2.0
// Reads config.json: a bounded JSON document without duplicate keys, then one lookup per field.
#include "io/model_config.hpp"

#include <fmt/format.h>

#include <array>
#include <filesystem>
#include <initializer_list>
#include <nlohmann/json.hpp>
#include <set>
#include <string_view>
#include <utility>

#include "io/json.hpp"
#include "io/text.hpp"

namespace flce::io {
namespace {

using Json = nlohmann::json;
using Spellings = std::initializer_list<std::string_view>;

constexpr std::size_t kMaxConfigBytes = std::size_t{4} << 20;  // real ones: a few KB to 2 MB
constexpr std::size_t kMaxDepth = 64;
constexpr std::int64_t kMaxSize = 1'000'000'000;  // V * H * 8 bytes still fit in 63 bits
constexpr double kMaxNumber = 1e30;               // products of two stay finite
constexpr std::string_view kNested = "text_config";

// Reads the text once before the document is built, and refuses what the document would hide or
// could not bear. (The library's own callback for this takes quadratic time on lists of objects.)
class Guard final : public nlohmann::json_sax<Json> {
 public:
  explicit Guard(const std::string& source) : source_(source) {}

  bool null() override { return true; }
  bool boolean(bool) override { return true; }
  bool number_integer(std::int64_t) override { return true; }
  bool number_unsigned(std::uint64_t) override { return true; }
  bool number_float(double, const std::string&) override { return true; }
  bool string(std::string&) override { return true; }
  bool binary(Json::binary_t&) override { return true; }
  bool start_object(std::size_t) override { return open(); }
  bool end_object() override { return close(); }
  bool start_array(std::size_t) override { return open(); }
  bool end_array() override { return close(); }

  bool key(std::string& key) override {
    if (!keys_.back().insert(key).second) {
      fail(source_, fmt::format("the key {} stands twice in one object", in_quotes(key)));
    }
    return true;
  }

  bool parse_error(std::size_t, const std::string&, const Json::exception& error) override {
    fail_json(source_, "the file", error);
  }

 private:
  bool open() {
    keys_.emplace_back();
    if (keys_.size() > kMaxDepth) {
      fail(source_, fmt::format("the JSON is nested deeper than {} levels", kMaxDepth));
    }
    return true;
  }

  bool close() {
    keys_.pop_back();
    return true;
  }

  const std::string& source_;
  std::vector<std::set<std::string>> keys_;  // of each open object or list
};

Json parse_json(const Bytes& file) {
  if (file.span.size() > kMaxConfigBytes) {
    fail(file.source, fmt::format("has {} bytes; a config.json has at most {}", file.span.size(),
                                  kMaxConfigBytes));
  }
  const std::string_view text(reinterpret_cast<const char*>(file.span.data()), file.span.size());
  refuse_zero_bytes(text, file.source);
  Guard guard(file.source);
  Json::sax_parse(text.begin(), text.end(), &guard);
  Json json = Json::parse(text.begin(), text.end());
  if (!json.is_object()) {
    fail(file.source, fmt::format("holds a JSON {}; expected an object", json.type_name()));
  }
  return json;
}

struct Field {
  std::string name;             // "text_config.hidden_size"
  const Json* value = nullptr;  // null: missing

  explicit operator bool() const noexcept { return value != nullptr; }
};

class Fields {
 public:
  Fields(const Json& top, const std::string& source) : top_(top), source_(source) {
    if (const Field nested = find_in(top, "", {kNested})) {
      if (!nested.value->is_object()) refuse(nested, "an object");
      nested_ = nested.value;
    }
  }

  std::int64_t required_size(Spellings spellings) const {
    if (const auto size = optional_size(spellings)) return *size;
    fail(source_, fmt::format("{} is missing; accepted spellings: {}, at the top level or in {}",
                              *spellings.begin(), fmt::join(spellings, ", "), kNested));
  }

  std::optional<std::int64_t> optional_size(Spellings spellings) const {
    const Field field = find(spellings);
    if (!field) return std::nullopt;
    return size_of(field, *field.value);
  }

  std::optional<std::int64_t> size_or_per_layer(Spellings spellings) const {
    const Field field = find(spellings);
    if (!field) return std::nullopt;
    if (!field.value->is_array()) return size_of(field, *field.value);
    std::optional<std::int64_t> common;
    bool all_same = true;
    for (const Json& layer : *field.value) {
      const std::int64_t size = size_of(field, layer);
      all_same = all_same && size == common.value_or(size);
      common = size;
    }
    return all_same ? common : std::nullopt;
  }

  std::optional<double> optional_number(std::string_view name, bool zero_allowed) const {
    const Field field = find({name});
    if (!field) return std::nullopt;
    const double number = field.value->is_number() ? field.value->get<double>() : -1.0;
    const bool in_range = number >= 1.0 / kMaxNumber && number <= kMaxNumber;
    if (!in_range && !(number == 0.0 && zero_allowed)) {
      refuse(field,
             zero_allowed ? "0 or a number from 1e-30 to 1e30" : "a number from 1e-30 to 1e30");
    }
    return number;
  }

  std::optional<bool> optional_bool(std::string_view name) const {
    const Field field = find({name});
    if (!field) return std::nullopt;
    if (!field.value->is_boolean()) refuse(field, "true or false");
    return field.value->get<bool>();
  }

  std::string optional_text(Spellings spellings) const {
    const Field field = find(spellings);
    if (!field) return "";
    if (!field.value->is_string()) refuse(field, "a text");
    return field.value->get<std::string>();
  }

  // What a model calls itself stands at the top level; the nested name is that of a part.
  std::string model_type() const {
    const Field field = find_in(top_, "", {"model_type"});
    if (!field) return optional_text({"model_type"});
    if (!field.value->is_string()) refuse(field, "a text");
    return field.value->get<std::string>();
  }

  std::vector<std::string> architectures() const {
    Field field = find_in(top_, "", {"architectures"});
    if (!field) field = find({"architectures"});
    if (!field) return {};
    if (!field.value->is_array()) refuse(field, "a list of texts");
    std::vector<std::string> names;
    for (const Json& name : *field.value) {
      if (!name.is_string()) refuse(field, "a list of texts");
      names.push_back(name.get<std::string>());
    }
    return names;
  }

 private:
  static Field find_in(const Json& object, std::string_view prefix, Spellings spellings) {
    for (const std::string_view spelling : spellings) {
      const auto found = object.find(spelling);
      if (found != object.end() && !found->is_null()) {
        return {std::string(prefix) + std::string(spelling), &*found};
      }
    }
    return {};
  }

  Field find(Spellings spellings) const {
    if (nested_ != nullptr) {
      if (Field field = find_in(*nested_, "text_config.", spellings)) return field;
    }
    return find_in(top_, "", spellings);
  }

  std::int64_t size_of(const Field& field, const Json& value) const {
    const bool in_range = value.is_number_unsigned() && value.get<std::uint64_t>() >= 1 &&
                          value.get<std::uint64_t>() <= kMaxSize;
    if (!in_range) refuse(field, fmt::format("a whole number from 1 to {}", kMaxSize));
    return value.get<std::int64_t>();
  }

  [[noreturn]] void refuse(const Field& field, std::string_view expected) const {
    const Json& value = *field.value;
    const std::string got =
        value.is_structured() ? std::string(value.type_name()) : printable(value.dump(), 60);
    fail(source_, fmt::format("{} must be {}, got {}", field.name, expected, got));
  }

  const Json& top_;
  const Json* nested_ = nullptr;
  const std::string& source_;
};

std::optional<Dtype> dtype_named(std::string_view name) {
  if (name.starts_with("torch.")) name.remove_prefix(6);
  constexpr std::array<std::pair<std::string_view, Dtype>, 4> kNames = {{
      {"float64", Dtype::kF64},
      {"float32", Dtype::kF32},
      {"bfloat16", Dtype::kBF16},
      {"float16", Dtype::kF16},
  }};
  for (const auto& [known, dtype] : kNames) {
    if (known == name) return dtype;
  }
  return std::nullopt;
}

}  // namespace

double ModelConfig::scale() const noexcept {
  return logit_scale.value_or(1.0) / logits_scaling.value_or(1.0);
}

ModelConfig parse_model_config(const Bytes& file) {
  const Json json = parse_json(file);
  const Fields fields(json, file.source);
  ModelConfig config;
  config.hidden_size = fields.required_size({"hidden_size", "n_embd", "d_model"});
  config.vocab_size = fields.required_size({"vocab_size", "padded_vocab_size"});
  config.num_hidden_layers =
      fields.optional_size({"num_hidden_layers", "n_layer", "n_layers", "num_layers"});
  config.num_attention_heads =
      fields.optional_size({"num_attention_heads", "n_head", "n_heads", "num_heads"});
  config.num_key_value_heads = fields.size_or_per_layer({"num_key_value_heads", "num_kv_heads"});
  config.head_dim = fields.size_or_per_layer({"head_dim"});
  config.intermediate_size = fields.size_or_per_layer({"intermediate_size", "n_inner", "d_ff"});
  config.max_position_embeddings =
      fields.optional_size({"max_position_embeddings", "n_positions", "n_ctx", "max_seq_len"});
  config.tie_word_embeddings = fields.optional_bool("tie_word_embeddings");
  config.final_logit_softcapping = fields.optional_number("final_logit_softcapping", true);
  config.logit_scale = fields.optional_number("logit_scale", false);
  config.logits_scaling = fields.optional_number("logits_scaling", false);
  config.dtype_name = fields.optional_text({"dtype", "torch_dtype"});
  config.dtype = dtype_named(config.dtype_name);
  config.model_type = fields.model_type();
  config.architectures = fields.architectures();
  return config;
}

ModelConfig read_model_config(const std::string& path) {
  std::error_code ignored;
  const bool is_folder = std::filesystem::is_directory(path, ignored);
  return parse_model_config(open_bytes(is_folder ? path + "/config.json" : path));
}

}  // namespace flce::io
