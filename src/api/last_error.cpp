// SPDX-License-Identifier: Apache-2.0
// A thread's key and not a thread_local: of a library that is loaded late, as by Python, the first
// touch of one on each thread allocates, and glibc ends the process where there is no memory.
#include "api/last_error.hpp"

#include <pthread.h>

#include <algorithm>
#include <atomic>
#include <cstdlib>
#include <cstring>

namespace flce {
namespace {

constexpr std::size_t kTextSize = 1024;
constexpr char kNoMemory[] = "out of memory";
constexpr char kNoText[] = "there was no memory for the text of this error";

bool is_constant(const void* text) { return text == kNoMemory || text == kNoText; }

void release(void* text) {
  if (!is_constant(text)) std::free(text);
}

// What threads say that have no text of their own; not "" where one could not even be noted, which
// takes memory in a process with many keys.
std::atomic<const char*> text_of_others{""};

class Key {
 public:
  Key() : is_made_(::pthread_key_create(&key_, &release) == 0) {}
  ~Key() {
    if (is_made_) ::pthread_key_delete(key_);
  }
  Key(const Key&) = delete;
  Key& operator=(const Key&) = delete;

  char* get() const { return is_made_ ? static_cast<char*>(::pthread_getspecific(key_)) : nullptr; }
  bool set(const char* text) const { return is_made_ && ::pthread_setspecific(key_, text) == 0; }

 private:
  pthread_key_t key_{};
  bool is_made_;
};

const Key& key() {
  static const Key instance;
  return instance;
}

// This thread's own memory; null if there is none to have.
char* buffer() {
  char* const held = key().get();
  if (held != nullptr && !is_constant(held)) return held;
  char* const made = static_cast<char*>(std::malloc(kTextSize));
  if (made == nullptr || key().set(made)) return made;
  std::free(made);
  return nullptr;
}

}  // namespace

void keep_last_error(ErrorCode code, const char* text) noexcept {
  char* const kept = buffer();
  if (kept == nullptr) {
    const char* const shorter = code == ErrorCode::kOutOfMemory ? kNoMemory : kNoText;
    if (!key().set(shorter)) text_of_others = shorter;
    return;
  }
  const std::size_t size = std::min(std::strlen(text), kTextSize - 1);
  std::memcpy(kept, text, size);
  kept[size] = '\0';
}

const char* last_error() noexcept {
  const char* const text = key().get();
  return text != nullptr ? text : text_of_others.load();
}

void clear_last_error() noexcept {
  char* const text = key().get();
  text_of_others = "";
  if (is_constant(text)) {
    key().set(nullptr);
  } else if (text != nullptr) {
    text[0] = '\0';
  }
}

}  // namespace flce
