// SPDX-License-Identifier: Apache-2.0
// parse_bytes, format_bytes, and the bytes of inputs and outputs. Must not know what a method
// keeps.
#include "plan/bytes.hpp"

#include <algorithm>
#include <cctype>
#include <limits>
#include <string>
#include <string_view>

#include "core/check.hpp"
#include "core/int_math.hpp"
#include "core/text.hpp"
#include "flce/plan.hpp"

namespace flce {
namespace {

__extension__ using Wide = unsigned __int128;

struct Unit {
  std::string_view name;  // in lower case
  std::uint64_t bytes;
};
constexpr Unit kUnits[] = {
    {"", 1},
    {"b", 1},
    {"k", 1000},
    {"kb", 1000},
    {"kib", std::uint64_t{1} << 10},
    {"m", 1000'000},
    {"mb", 1000'000},
    {"mib", std::uint64_t{1} << 20},
    {"g", 1000'000'000},
    {"gb", 1000'000'000},
    {"gib", std::uint64_t{1} << 30},
    {"t", 1000'000'000'000},
    {"tb", 1000'000'000'000},
    {"tib", std::uint64_t{1} << 40},
};

bool is_digit(char c) { return c >= '0' && c <= '9'; }

std::uint64_t unit_of(std::string_view unit, std::string_view text) {
  std::string lower(unit);
  std::transform(lower.begin(), lower.end(), lower.begin(),
                 [](unsigned char c) { return static_cast<char>(std::tolower(c)); });
  for (const Unit& known : kUnits) {
    if (lower == known.name) return known.bytes;
  }
  fail(ErrorCode::kInvalidArgument,
       "'{}' is not a number of bytes: unknown unit '{}'; write 2GiB, 500MB, 1.5GB or plain bytes",
       text, unit);
}

}  // namespace

// Exact: the digits before and after the point are integers, never a floating-point number.
std::uint64_t parse_bytes(std::string_view text) {
  constexpr std::string_view kSpace = " \t";
  constexpr int kMaxDecimals = 9;
  std::size_t i = std::min(text.find_first_not_of(kSpace), text.size());
  Wide digits = 0;
  std::uint64_t tenths = 1;  // ten to the number of decimals
  bool any = false;
  bool point = false;
  for (int decimals = 0; i < text.size() && (is_digit(text[i]) || text[i] == '.'); ++i) {
    if (text[i] == '.') {
      if (point) break;
      point = true;
      continue;
    }
    any = true;
    if (point && ++decimals > kMaxDecimals) continue;
    if (point) tenths *= 10;
    digits = digits * 10 + static_cast<unsigned>(text[i] - '0');
    require(digits / tenths <= kSaturated, "'{}' is more bytes than 64 bits can count", text);
  }
  require(any, "'{}' is not a number of bytes: write 2GiB, 500MB, 1.5GB or plain bytes", text);
  std::string_view unit = text.substr(i);
  unit.remove_prefix(std::min(unit.find_first_not_of(kSpace), unit.size()));
  while (!unit.empty() && kSpace.find(unit.back()) != std::string_view::npos) unit.remove_suffix(1);
  const std::uint64_t scale = unit_of(unit, text);
  require(scale > 1 || digits % tenths == 0, "'{}' is not a whole number of bytes", text);
  const Wide bytes = digits * scale / tenths;
  require(bytes <= kSaturated, "'{}' is more bytes than 64 bits can count", text);
  return static_cast<std::uint64_t>(bytes);
}

BytesText bytes_text(std::uint64_t bytes) {
  BytesText text{};
  if (bytes < 1000) {
    write_text(text, "{} B", bytes);
    return text;
  }
  constexpr std::array kNames{"kB", "MB", "GB", "TB", "PB", "EB"};
  double value = static_cast<double>(bytes) / 1000.0;
  std::size_t i = 0;
  // 999.995 would print as 1000.00.
  while (value >= 999.995 && i + 1 < kNames.size()) {
    value /= 1000.0;
    ++i;
  }
  write_text(text, "{:.2f} {}", value, kNames[i]);
  return text;
}

std::string format_bytes(std::uint64_t bytes) { return bytes_text(bytes).data(); }

std::uint64_t input_bytes_of(const Problem& p) {
  const std::int64_t n = p.tokens;
  std::uint64_t sum = 0;
  const auto add = [&](std::int64_t rows, std::int64_t cols, Dtype dtype) {
    sum = saturating_add(sum, bytes_of(rows, cols, size_of(dtype)));
  };
  add(n, p.hidden, p.dtype);
  add(p.vocab, p.hidden, p.dtype);
  add(n, 1, p.target_dtype);
  add(p.vocab, 1, p.bias_dtype);
  add(p.vocab, 1, p.class_weight_dtype);
  add(n, 1, p.token_weight_dtype);
  add(n, 1, p.temperature_dtype);
  add(n, 1, p.grad_entropy_dtype);
  add(1, 1, p.normalizer_dtype);
  if (p.upstream == Upstream::kScalar) add(1, 1, p.grad_output_dtype);
  if (p.upstream == Upstream::kPerToken) add(n, 1, p.grad_output_dtype);
  return sum;
}

std::uint64_t output_bytes_of(const Problem& p) {
  const std::int64_t n = p.tokens;
  const Wants& w = p.wants;
  const Dtype result = accumulation_dtype(p.dtype);
  const std::int64_t losses = p.options.reduction == Reduction::kNone ? n : 1;
  std::uint64_t sum = 0;
  const auto add = [&](bool wanted, std::int64_t rows, std::int64_t cols, Dtype dtype) {
    if (wanted) sum = saturating_add(sum, bytes_of(rows, cols, size_of(dtype)));
  };
  add(true, losses, 1, result);
  add(w.z_loss, losses, 1, result);
  add(w.lse, n, 1, result);
  add(w.logprob, n, 1, result);
  add(w.entropy, n, 1, result);
  add(w.argmax, n, 1, Dtype::kI64);
  add(w.num_correct, 1, 1, Dtype::kI64);
  add(w.num_valid, 1, 1, Dtype::kI64);
  add(w.topk > 0, n, w.topk, result);
  add(w.topk > 0, n, w.topk, Dtype::kI64);
  add(w.grad_hidden, n, p.hidden, p.dtype);
  add(w.grad_weight, p.vocab, p.hidden, grad_weight_dtype_of(p));
  add(w.grad_bias, p.vocab, 1,
      p.grad_bias_dtype == Dtype::kNone ? p.bias_dtype : p.grad_bias_dtype);
  return sum;
}

}  // namespace flce
