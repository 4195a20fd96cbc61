// SPDX-License-Identifier: Apache-2.0
// flce::parse_problem. A problem that it accepts has a text, and that text means the same problem.
#include <string>
#include <string_view>

#include "flce/flce.hpp"
#include "fuzz_common.hpp"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  flce::ProblemText parsed;
  bool accepted = false;
  flce::fuzz::only_throws_error([&] {
    parsed = flce::parse_problem(text);
    accepted = true;
  });
  if (!accepted) return 0;
  const std::string formatted = flce::format_problem(parsed.problem, parsed.request);
  const flce::ProblemText again = flce::parse_problem(formatted);
  flce::fuzz::demand(again.problem == parsed.problem, "the problem survives its text");
  flce::fuzz::demand(again.request == parsed.request, "the request survives its text");
  return 0;
}
