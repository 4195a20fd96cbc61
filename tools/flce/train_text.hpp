// SPDX-License-Identifier: Apache-2.0
// A text file as numbers: words and punctuation marks, the vocabulary that they make, and one
// token per mark. Used by `flce train` alone; knows nothing of models or losses.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace flce::cli {

struct Corpus {
  std::vector<std::string> words;    // words[0] is "<unk>", then the most frequent first
  std::vector<std::int32_t> tokens;  // the text, as indices into `words`
  std::int64_t distinct_words = 0;   // in the text, before the limit
  std::int64_t unknown_tokens = 0;   // tokens whose word fell to the limit
  bool stripped_verse_labels = false;

  std::int64_t vocab() const { return static_cast<std::int64_t>(words.size()); }
};

// The bytes of a text file, or of standard input for "-". Throws Error{kInvalidArgument} for a file
// that is missing, unreadable, a folder, empty or binary.
std::string read_text(const std::string& path);

// Removes labels such as "Ge1:1 " or "1Chr12:3 " from the lines if most lines begin with one.
// Returns whether it did.
bool strip_verse_labels(std::string& text);

// Words (letters, digits, bytes beyond ASCII; an apostrophe or hyphen inside) and single marks.
std::vector<std::string_view> split_words(std::string_view text);

// The whole way. `max_vocab` counts "<unk>"; 0 means no limit. Throws Error{kInvalidArgument} when
// the text has fewer than `min_tokens` tokens.
Corpus read_corpus(const std::string& path, std::int64_t max_vocab, std::int64_t min_tokens);

}  // namespace flce::cli
