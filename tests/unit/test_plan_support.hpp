// SPDX-License-Identifier: Apache-2.0
// What the planner's tests share: problems by text, fixed capabilities, and the error of a call.
#pragma once

#include <gtest/gtest.h>

#include <string>
#include <string_view>

#include "core/text.hpp"
#include "flce/flce.hpp"

namespace flce::test {

inline Problem problem_by(std::string_view text) { return parse_problem(text).problem; }

// A processor that is the same on every machine, so that expected bytes are too.
inline DeviceCaps fixed_cpu(int threads = 2) {
  DeviceCaps caps;
  caps.kind = DeviceKind::kCpu;
  caps.num_threads = threads;
  write_text(caps.name, "test cpu");
  return caps;
}

inline const MethodReport& report_of(const Plan& plan, Method method) {
  return plan.methods[static_cast<std::size_t>(method) - 1];
}

// The text of the Error{code} that `call` must throw.
template <typename Call>
std::string error_of(ErrorCode code, Call call) {
  try {
    call();
  } catch (const Error& error) {
    EXPECT_EQ(static_cast<int>(error.code()), static_cast<int>(code)) << error.what();
    return error.what();
  }
  ADD_FAILURE() << "nothing was thrown";
  return {};
}

inline bool contains(std::string_view text, std::string_view part) {
  return text.find(part) != std::string_view::npos;
}

// The whole number right after `before` in `text`; 0 if there is none.
inline std::uint64_t number_after(std::string_view text, std::string_view before) {
  const std::size_t at = text.find(before);
  if (at == std::string_view::npos) return 0;
  std::uint64_t value = 0;
  for (std::size_t i = at + before.size(); i < text.size(); ++i) {
    if (text[i] < '0' || text[i] > '9') break;
    value = value * 10 + static_cast<std::uint64_t>(text[i] - '0');
  }
  return value;
}

}  // namespace flce::test
