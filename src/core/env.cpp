// SPDX-License-Identifier: Apache-2.0
#include "core/env.hpp"

#include <charconv>
#include <cstdlib>
#include <string_view>

#include "core/check.hpp"

namespace flce {
namespace {

constexpr int kMaxThreads = 1024;

std::string_view variable(const char* name) {
  const char* value = std::getenv(name);
  return value == nullptr ? std::string_view{} : std::string_view{value};
}

Environment read_environment() {
  Environment env;
  const std::string_view threads = variable("FLCE_NUM_THREADS");
  if (!threads.empty()) {
    const char* end = threads.data() + threads.size();
    const auto [last, error] = std::from_chars(threads.data(), end, env.num_threads);
    require(error == std::errc{} && last == end && env.num_threads >= 1 &&
                env.num_threads <= kMaxThreads,
            "FLCE_NUM_THREADS is '{}'; it must be a whole number from 1 to {}", threads,
            kMaxThreads);
  }
  env.isa = variable("FLCE_ISA");
  const std::string_view check = variable("FLCE_CHECK");
  require(check.empty() || check == "0" || check == "1",
          "FLCE_CHECK is '{}'; it must be 1 (check every target) or 0", check);
  env.check_targets = check == "1";
  return env;
}

}  // namespace

const Environment& environment() {
  static const Environment env = read_environment();
  return env;
}

}  // namespace flce
