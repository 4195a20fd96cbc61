// SPDX-License-Identifier: Apache-2.0
#include "bench_input.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <iterator>
#include <sstream>
#include <string_view>

#include "common.hpp"
#include "run_shared.hpp"

namespace flce::cli {
namespace {

constexpr std::int64_t kTokens = 1024;
constexpr std::int64_t kHidden = 256;
constexpr std::int64_t kVocab = 32000;
constexpr std::array<std::string_view, 4> kDtypes{"f32", "bf16", "f16", "f64"};

// "n1024_h256_v32000", right or wrong: parse_problem says what is wrong with it.
bool is_sizes(const std::string& word) {
  return word.size() > 1 && word[0] == 'n' && word[1] >= '0' && word[1] <= '9';
}

bool is_dtype(const std::string& word) {
  return std::find(kDtypes.begin(), kDtypes.end(), word) != kDtypes.end();
}

bool is_softcap(const std::string& word) { return word.rfind("softcap=", 0) == 0; }

template <typename Value>
void require_same(const char* option, const std::optional<Value>& given, const Value& text) {
  if (!given || *given == text) return;
  throw Error(
      ErrorCode::kInvalidArgument,
      fmt::format("{} {} contradicts the problem text, which says {}; leave out one of them",
                  option, *given, text));
}

}  // namespace

void add_bench_problem(CLI::App& app, BenchProblem& problem) {
  app.add_option("problem", problem.words,
                 "A problem text, such as n1024_h256_v32000 f32 mean (the default)")
      ->type_name("TEXT");
  add_count_option(app, "--tokens", problem.tokens, "Tokens (N)")->type_name("N");
  add_count_option(app, "--hidden", problem.hidden, "Hidden size (H)")->type_name("H");
  add_count_option(app, "--vocab", problem.vocab, "Vocabulary (V)")->type_name("V");
  app.add_option("--dtype", problem.dtype, "f32, bf16, f16 or f64 of hidden and weight")
      ->check(CLI::IsMember(std::vector<std::string>(kDtypes.begin(), kDtypes.end())))
      ->type_name("DTYPE");
  app.add_option("--preset", problem.preset,
                 "A model whose hidden size, vocabulary and softcap are meant, such as qwen3-8b")
      ->type_name("NAME");
}

std::optional<ModelShape> model_of(const BenchProblem& problem) {
  if (!problem.preset) return std::nullopt;
  return model_preset(*problem.preset);
}

ProblemText problem_text_of(const BenchProblem& problem) {
  // A text in quotes is one argument, without quotes it is several.
  std::istringstream stream(joined(problem.words, " "));
  std::vector<std::string> words{std::istream_iterator<std::string>(stream), {}};
  const std::optional<ModelShape> model = model_of(problem);
  if (std::none_of(words.begin(), words.end(), is_sizes)) {
    const std::int64_t hidden = problem.hidden.value_or(model ? model->hidden : kHidden);
    const std::int64_t vocab = problem.vocab.value_or(model ? model->vocab : kVocab);
    words.insert(words.begin(),
                 fmt::format("n{}_h{}_v{}", problem.tokens.value_or(kTokens), hidden, vocab));
  }
  if (model && model->softcap > 0.0 && std::none_of(words.begin(), words.end(), is_softcap)) {
    words.push_back(fmt::format("softcap={}", model->softcap));
  }
  if (std::none_of(words.begin(), words.end(), is_dtype)) {
    words.push_back(problem.dtype.value_or("f32"));
  }
  const ProblemText text = parse_problem(joined(words, " "));
  require_same("--tokens", problem.tokens, text.problem.tokens);
  require_same("--hidden", problem.hidden, text.problem.hidden);
  require_same("--vocab", problem.vocab, text.problem.vocab);
  if (model) {
    const std::string preset = "--preset " + *problem.preset + ", hidden";
    require_same(preset.c_str(), std::optional(model->hidden), text.problem.hidden);
    const std::string vocab = "--preset " + *problem.preset + ", vocab";
    require_same(vocab.c_str(), std::optional(model->vocab), text.problem.vocab);
  }
  require_same("--dtype", problem.dtype, std::string(name_of(text.problem.dtype)));
  return text;
}

}  // namespace flce::cli
