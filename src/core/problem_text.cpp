// SPDX-License-Identifier: Apache-2.0
// One text for a problem everywhere: tests, command line, CSV files and bug reports. A text is a
// list of words; docs/problem-text.md shows them. `parse_problem` and `format_problem` are
// inverses.
#include <charconv>
#include <cmath>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "core/check.hpp"
#include "flce/flce.hpp"

namespace flce {
namespace {

constexpr std::string_view kKnownWords =
    "nN_hH_vV, f64|f32|bf16|f16, none|sum|mean, target=i64|i32, bias[=f32], class_weight[=f32], "
    "token_weight[=f32], ignore_index=I, label_smoothing=X, z_loss=X, softcap=X, scale=X, "
    "temperature=X|per_token, normalizer=X, shift=K, sequence_length=K, upstream=scalar|per_token, "
    "grad_entropy, grad_weight=f32, accumulate, grad_bias, no_grad_hidden, no_grad_weight, "
    "lse, logprob, entropy, z_loss_part, argmax, num_correct, num_valid, topk=K, split, "
    "method=M, chunk=C, budget=BYTES, policy=measured|liger, route=auto|portable|hopper, tf32";

template <typename Number>
Number parse_number(std::string_view word, std::string_view text) {
  Number value{};
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  require(error == std::errc{} && end == text.data() + text.size(),
          "'{}' in the problem text: '{}' is not a number in range", word, text);
  if constexpr (std::is_floating_point_v<Number>) {
    require(std::isfinite(value), "'{}' in the problem text: '{}' is not a finite number", word,
            text);
  }
  return value;
}

// "n37_h65_v129"
bool parse_sizes(std::string_view word, Problem& problem) {
  if (word.empty() || word[0] != 'n') return false;
  const auto h = word.find("_h");
  const auto v = word.find("_v");
  if (h == std::string_view::npos || v == std::string_view::npos || v < h) return false;
  problem.tokens = parse_number<std::int64_t>(word, word.substr(1, h - 1));
  problem.hidden = parse_number<std::int64_t>(word, word.substr(h + 2, v - h - 2));
  problem.vocab = parse_number<std::int64_t>(word, word.substr(v + 2));
  require(problem.tokens >= 0 && problem.hidden >= 0 && problem.vocab >= 0,
          "'{}' in the problem text: sizes must not be negative", word);
  return true;
}

// Words that stand alone and switch one thing on.
bool parse_switch(std::string_view word, ProblemText& text) {
  Problem& p = text.problem;
  const auto set = [&](std::string_view name, bool& field, bool value = true) {
    if (word != name) return false;
    field = value;
    return true;
  };
  Wants& w = p.wants;
  if (word == "split") return p.pass = Pass::kForwardBackward, true;
  return set("tf32", text.request.allow_tf32) || set("accumulate", p.accumulate_grad_weight) ||
         set("grad_bias", w.grad_bias) || set("accumulate_bias", p.accumulate_grad_bias) ||
         set("no_grad_hidden", w.grad_hidden, false) ||
         set("no_grad_weight", w.grad_weight, false) || set("lse", w.lse) ||
         set("logprob", w.logprob) || set("entropy", w.entropy) || set("z_loss_part", w.z_loss) ||
         set("argmax", w.argmax) || set("num_correct", w.num_correct) ||
         set("num_valid", w.num_valid);
}

bool parse_dtype(std::string_view word, Problem& p) {
  for (const Dtype dtype : {Dtype::kF64, Dtype::kF32, Dtype::kBF16, Dtype::kF16}) {
    if (word == name_of(dtype)) return p.dtype = dtype, true;
  }
  return false;
}

bool parse_reduction(std::string_view word, Problem& p) {
  for (const Reduction r : {Reduction::kNone, Reduction::kSum, Reduction::kMean}) {
    if (word == name_of(r)) return p.options.reduction = r, true;
  }
  return false;
}

// What a word is about; empty for one that parse_head takes no part in.
std::string_view parse_head(std::string_view word, Problem& p) {
  if (parse_sizes(word, p)) return "sizes";
  if (parse_dtype(word, p)) return "dtype";
  return parse_reduction(word, p) ? "reduction" : "";
}

// `key` or `key=f32`: an optional tensor in hidden's dtype (kNone marks that until the end) or f32.
struct OptionalTensor {
  std::string_view key;
  Dtype Problem::*field;
};
constexpr OptionalTensor kOptionalTensors[] = {
    {"bias", &Problem::bias_dtype},
    {"class_weight", &Problem::class_weight_dtype},
    {"token_weight", &Problem::token_weight_dtype},
    {"grad_entropy", &Problem::grad_entropy_dtype},
};

bool parse_tensor(std::string_view key, std::string_view value, Problem& p) {
  for (const OptionalTensor& tensor : kOptionalTensors) {
    if (key != tensor.key) continue;
    require(value.empty() || value == "f32",
            "'{}={}' in the problem text: write '{}' (hidden's dtype) or '{}=f32'", key, value, key,
            key);
    p.*tensor.field = value.empty() ? p.dtype : Dtype::kF32;
    return true;
  }
  return false;
}

bool parse_option(std::string_view key, std::string_view value, Problem& p) {
  Options& o = p.options;
  const auto real = [&] { return parse_number<double>(key, value); };
  const auto whole = [&] { return parse_number<std::int64_t>(key, value); };
  if (key == "label_smoothing") return o.label_smoothing = real(), true;
  if (key == "z_loss") return o.z_loss = real(), true;
  if (key == "softcap") return o.softcap = real(), true;
  if (key == "scale") return o.scale = real(), true;
  if (key == "ignore_index") return o.ignore_index = whole(), true;
  if (key == "shift") return o.shift = whole(), true;
  if (key == "sequence_length") return o.sequence_length = whole(), true;
  if (key == "topk") {
    p.wants.topk = whole();
    require(p.wants.topk >= 0, "'topk={}' in the problem text: it must be 0 or more", value);
    return true;
  }
  if (key == "normalizer") return o.normalizer = real(), o.has_normalizer = true, true;
  if (key == "temperature" && value == "per_token") return p.temperature_dtype = Dtype::kF32, true;
  if (key == "temperature") return o.temperature = real(), true;
  if (key == "target") return p.target_dtype = index_dtype_of(value), true;
  if (key == "grad_weight") {
    const Dtype dtype = real_dtype_of(value);
    p.grad_weight_dtype = dtype == p.dtype ? Dtype::kNone : dtype;
    return true;
  }
  if (key == "upstream") {
    require(value == "scalar" || value == "per_token",
            "'upstream={}' in the problem text: scalar or per_token", value);
    p.upstream = value == "scalar" ? Upstream::kScalar : Upstream::kPerToken;
    p.grad_output_dtype = p.dtype == Dtype::kF64 ? Dtype::kF64 : Dtype::kF32;
    return true;
  }
  return false;
}

bool parse_request(std::string_view key, std::string_view value, PlanRequest& request) {
  if (key == "method") return request.method = method_of(value), true;
  if (key == "chunk") return request.chunk = parse_number<std::int64_t>(key, value), true;
  if (key == "budget") return request.budget_bytes = parse_bytes(value), true;
  if (key == "policy") {
    require(value == "measured" || value == "liger",
            "'policy={}' in the problem text: measured or liger", value);
    request.policy = value == "liger" ? ChunkPolicy::kLiger : ChunkPolicy::kMeasured;
    return true;
  }
  if (key == "route") return request.route = route_of(value), true;
  return false;
}

// Which word said what: of two words about the same thing the last one would silently win.
class Said {
 public:
  void once(std::string_view subject, std::string_view word) {
    const std::string_view before = of(subject);
    require(before.empty(),
            "'{}' and '{}' in the problem text are both about {}; leave out one of them", before,
            word, subject);
    said_.emplace_back(subject, word);
  }
  // Two words of which one makes the other one idle.
  void not_both(std::string_view a, std::string_view b, std::string_view why) const {
    require(of(a).empty() || of(b).empty(),
            "'{}' and '{}' in the problem text: {}; leave out one of them", of(a), of(b), why);
  }

 private:
  // The word, empty if there was none.
  std::string_view of(std::string_view subject) const {
    for (const auto& [other, word] : said_) {
      if (other == subject) return word;
    }
    return {};
  }

  std::vector<std::pair<std::string_view, std::string_view>> said_;
};

// Words that a head does not have.
void parse_rest(std::string_view word, ProblemText& result, Said& said) {
  const std::size_t equals = word.find('=');
  const bool has_value = equals != std::string_view::npos;
  const std::string_view key = word.substr(0, equals);
  const std::string_view value = has_value ? word.substr(equals + 1) : std::string_view{};
  require(!has_value || !value.empty(), "'{}' in the problem text has no value after '='", word);
  const bool known = has_value
                         ? parse_option(key, value, result.problem) ||
                               parse_request(key, value, result.request) ||
                               parse_tensor(key, value, result.problem)
                         : parse_switch(word, result) || parse_tensor(key, value, result.problem);
  require(known, "unknown word '{}' in the problem text; known: {}", word, kKnownWords);
  said.once(key, word);
}

// Calls `visit` with each word of the text.
template <typename Visit>
void for_each_word(std::string_view text, Visit visit) {
  constexpr std::string_view kSpace = " \t\r\n";
  std::size_t begin = text.find_first_not_of(kSpace);
  while (begin != std::string_view::npos) {
    const std::size_t end = text.find_first_of(kSpace, begin);
    visit(text.substr(begin, end - begin));
    begin = end == std::string_view::npos ? end : text.find_first_not_of(kSpace, end);
  }
}

}  // namespace

ProblemText parse_problem(std::string_view text) {
  ProblemText result;
  Said said;
  bool has_sizes = false;
  // The head first: an optional tensor's dtype is hidden's, wherever that word stands.
  for_each_word(text, [&](std::string_view word) {
    const std::string_view subject = parse_head(word, result.problem);
    if (subject.empty()) return;
    said.once(subject, word);
    has_sizes |= subject == "sizes";
  });
  require(has_sizes, "the problem text '{}' lacks sizes such as n1024_h512_v32000", text);
  for_each_word(text, [&](std::string_view word) {
    Problem scratch;
    if (parse_head(word, scratch).empty()) parse_rest(word, result, said);
  });
  said.not_both("chunk", "policy", "both choose the chunk");
  return result;
}

namespace {

void format_options(const Problem& p, std::string& text) {
  const Options& o = p.options;
  const Options defaults;
  const auto add = [&](std::string_view key, const auto& value, const auto& unless) {
    if (value != unless) text += fmt::format(" {}={}", key, value);
  };
  add("ignore_index", o.ignore_index, defaults.ignore_index);
  add("label_smoothing", o.label_smoothing, 0.0);
  add("z_loss", o.z_loss, 0.0);
  add("softcap", o.softcap, 0.0);
  add("scale", o.scale, 1.0);
  add("temperature", o.temperature, 1.0);
  if (p.temperature_dtype != Dtype::kNone) text += " temperature=per_token";
  if (o.has_normalizer) text += fmt::format(" normalizer={}", o.normalizer);
  add("shift", o.shift, std::int64_t{0});
  add("sequence_length", o.sequence_length, std::int64_t{0});
  if (p.upstream == Upstream::kScalar) text += " upstream=scalar";
  if (p.upstream == Upstream::kPerToken) text += " upstream=per_token";
}

void format_wants(const Problem& p, std::string& text) {
  const Wants& w = p.wants;
  const auto add = [&](bool on, std::string_view word) {
    if (on) text += fmt::format(" {}", word);
  };
  add(p.accumulate_grad_weight, "accumulate");
  add(p.accumulate_grad_bias, "accumulate_bias");
  add(!w.grad_hidden, "no_grad_hidden");
  add(!w.grad_weight, "no_grad_weight");
  add(w.grad_bias, "grad_bias");
  add(w.lse, "lse");
  add(w.logprob, "logprob");
  add(w.entropy, "entropy");
  add(w.z_loss, "z_loss_part");
  add(w.argmax, "argmax");
  add(w.num_correct, "num_correct");
  add(w.num_valid, "num_valid");
  if (w.topk > 0) text += fmt::format(" topk={}", w.topk);
}

}  // namespace

std::string format_problem(const Problem& p, const PlanRequest& request) {
  std::string text = fmt::format("n{}_h{}_v{} {} {}", p.tokens, p.hidden, p.vocab, name_of(p.dtype),
                                 name_of(p.options.reduction));
  if (p.target_dtype != Dtype::kI64) text += fmt::format(" target={}", name_of(p.target_dtype));
  for (const OptionalTensor& tensor : kOptionalTensors) {
    const Dtype dtype = p.*tensor.field;
    if (dtype == Dtype::kNone) continue;
    text += fmt::format(" {}{}", tensor.key, dtype == p.dtype ? "" : "=f32");
  }
  if (p.grad_weight_dtype != Dtype::kNone && p.grad_weight_dtype != p.dtype) {
    text += fmt::format(" grad_weight={}", name_of(p.grad_weight_dtype));
  }
  format_options(p, text);
  format_wants(p, text);
  if (p.pass == Pass::kForwardBackward) text += " split";
  if (request.method != Method::kAuto) text += fmt::format(" method={}", name_of(request.method));
  if (request.chunk != 0) text += fmt::format(" chunk={}", request.chunk);
  if (request.budget_bytes != 0) text += fmt::format(" budget={}", request.budget_bytes);
  if (request.policy == ChunkPolicy::kLiger) text += " policy=liger";
  if (request.route != Route::kAuto) text += fmt::format(" route={}", name_of(request.route));
  if (request.allow_tf32) text += " tf32";
  return text;
}

}  // namespace flce
