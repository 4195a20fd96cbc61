// SPDX-License-Identifier: Apache-2.0
#include "train_text.hpp"

#include <fmt/core.h>

#include <algorithm>
#include <cctype>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <iostream>
#include <iterator>
#include <system_error>
#include <unordered_map>
#include <utility>

#include "flce/error.hpp"

namespace flce::cli {
namespace {

constexpr std::uintmax_t kMaxTextBytes = std::uintmax_t{1} << 30;

[[noreturn]] void refuse(const std::string& path, const std::string& what) {
  throw Error(ErrorCode::kInvalidArgument, fmt::format("{}: {}", path, what));
}

bool is_digit(char c) { return c >= '0' && c <= '9'; }

bool is_letter(char c) { return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z'); }

bool is_word_byte(char c) {
  return is_letter(c) || is_digit(c) || static_cast<unsigned char>(c) >= 0x80;
}

bool is_space(char c) { return std::isspace(static_cast<unsigned char>(c)) != 0; }

// Bytes of a punctuation mark beyond ASCII (U+00A0..U+00BF, U+2000..U+207F: quotes, dashes, dots),
// 0 for anything else.
std::size_t utf8_mark_length(std::string_view text, std::size_t at) {
  const auto byte = [&](std::size_t i) {
    return at + i < text.size() ? static_cast<unsigned char>(text[at + i]) : 0U;
  };
  if (byte(0) == 0xC2 && byte(1) >= 0xA0 && byte(1) <= 0xBF) return 2;
  if (byte(0) == 0xE2 && (byte(1) == 0x80 || byte(1) == 0x81) && byte(2) >= 0x80) return 3;
  return 0;
}

bool starts_word(std::string_view text, std::size_t at) {
  return at < text.size() && is_word_byte(text[at]) && utf8_mark_length(text, at) == 0;
}

// Bytes of an apostrophe (straight or curly) or hyphen between two parts of a word, 0 for others.
std::size_t joint_length(std::string_view text, std::size_t at) {
  const bool is_curly = text.substr(at, 3) == "\xE2\x80\x99";
  const std::size_t length = is_curly ? 3 : 1;
  const bool is_joint = is_curly || text[at] == '\'' || text[at] == '-';
  return is_joint && starts_word(text, at + length) ? length : 0;
}

// Control bytes that no text holds: a few may be stray, many mean that this is no text.
bool looks_binary(std::string_view bytes) {
  std::size_t strange = 0;
  for (const char c : bytes) {
    if (c == '\0') return true;
    const auto byte = static_cast<unsigned char>(c);
    if ((byte < 0x20 && !is_space(c) && byte != 0x1B) || byte == 0x7F) ++strange;
  }
  return strange * 100 > bytes.size();
}

std::string read_stream(std::istream& stream) {
  return {std::istreambuf_iterator<char>(stream), std::istreambuf_iterator<char>()};
}

// The length of "1Chr12:3 " at the start of the line, 0 if there is none.
std::size_t verse_label_length(std::string_view line) {
  std::size_t at = 0;
  const auto skip = [&](bool (*wanted)(char)) {
    const std::size_t begin = at;
    while (at < line.size() && wanted(line[at])) ++at;
    return at > begin;
  };
  if (at < line.size() && is_digit(line[at])) ++at;
  if (!skip(is_letter) || !skip(is_digit) || at >= line.size() || line[at] != ':') return 0;
  ++at;
  if (!skip(is_digit) || at >= line.size() || line[at] != ' ') return 0;
  return at + 1;
}

template <typename Visit>
void for_each_line(std::string_view text, Visit visit) {
  while (!text.empty()) {
    const std::size_t end = std::min(text.find('\n'), text.size() - 1) + 1;
    visit(text.substr(0, end));
    text.remove_prefix(end);
  }
}

using Counts = std::vector<std::pair<std::string_view, std::int64_t>>;

// Most frequent first, ties in the order of their bytes, so that the numbering is repeatable.
Counts count_words(const std::vector<std::string_view>& marks) {
  std::unordered_map<std::string_view, std::int64_t> counts;
  for (const std::string_view mark : marks) ++counts[mark];
  Counts sorted(counts.begin(), counts.end());
  std::sort(sorted.begin(), sorted.end(), [](const auto& a, const auto& b) {
    return a.second != b.second ? a.second > b.second : a.first < b.first;
  });
  return sorted;
}

}  // namespace

std::string read_text(const std::string& path) {
  std::string text;
  if (path == "-") {
    text = read_stream(std::cin);
  } else {
    std::error_code error;
    if (std::filesystem::is_directory(path, error)) refuse(path, "is a folder, not a text file");
    const std::uintmax_t size = std::filesystem::file_size(path, error);
    if (!error && size > kMaxTextBytes) refuse(path, "more than 1 GiB; give a part of it");
    std::ifstream file(path, std::ios::binary);
    if (!file) refuse(path, fmt::format("cannot read the text: {}", std::strerror(errno)));
    text = read_stream(file);
    if (file.bad()) refuse(path, "reading the text failed");
  }
  if (text.empty()) refuse(path, "is empty; give a text of some thousand words");
  if (looks_binary(text)) refuse(path, "holds binary data; give plain text (ASCII or UTF-8)");
  return text;
}

bool strip_verse_labels(std::string& text) {
  std::int64_t num_lines = 0;
  std::int64_t num_labels = 0;
  for_each_line(text, [&](std::string_view line) {
    num_lines += line.find_first_not_of(" \t\r\n") != std::string_view::npos ? 1 : 0;
    num_labels += verse_label_length(line) > 0 ? 1 : 0;
  });
  if (num_labels * 2 <= num_lines) return false;
  std::string stripped;
  stripped.reserve(text.size());
  for_each_line(text,
                [&](std::string_view line) { stripped += line.substr(verse_label_length(line)); });
  text = std::move(stripped);
  return true;
}

std::vector<std::string_view> split_words(std::string_view text) {
  std::vector<std::string_view> marks;
  std::size_t at = 0;
  while (at < text.size()) {
    if (is_space(text[at])) {
      ++at;
      continue;
    }
    const std::size_t begin = at;
    at += std::max<std::size_t>(1, utf8_mark_length(text, at));
    const bool is_word = utf8_mark_length(text, begin) == 0 && is_word_byte(text[begin]);
    while (is_word && at < text.size()) {
      const std::size_t joint = joint_length(text, at);
      if (joint == 0 && !starts_word(text, at)) break;
      at += std::max<std::size_t>(1, joint);
    }
    marks.push_back(text.substr(begin, at - begin));
  }
  return marks;
}

Corpus read_corpus(const std::string& path, std::int64_t max_vocab, std::int64_t min_tokens) {
  std::string text = read_text(path);
  Corpus corpus;
  corpus.stripped_verse_labels = strip_verse_labels(text);
  const std::vector<std::string_view> marks = split_words(text);
  if (static_cast<std::int64_t>(marks.size()) < min_tokens) {
    refuse(path, fmt::format("has {} words and punctuation marks; at least {} are needed for a "
                             "training and a validation part",
                             marks.size(), min_tokens));
  }
  const Counts counts = count_words(marks);
  corpus.distinct_words = static_cast<std::int64_t>(counts.size());
  corpus.words.emplace_back("<unk>");
  std::unordered_map<std::string_view, std::int32_t> index_of;
  for (const auto& [word, count] : counts) {
    if (max_vocab > 0 && corpus.vocab() >= max_vocab) break;
    index_of.emplace(word, static_cast<std::int32_t>(corpus.vocab()));
    corpus.words.emplace_back(word);
  }
  corpus.tokens.reserve(marks.size());
  for (const std::string_view mark : marks) {
    const auto found = index_of.find(mark);
    corpus.tokens.push_back(found == index_of.end() ? 0 : found->second);
    corpus.unknown_tokens += found == index_of.end() ? 1 : 0;
  }
  return corpus;
}

}  // namespace flce::cli
