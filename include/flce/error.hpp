// SPDX-License-Identifier: Apache-2.0
// The one exception of the C++ interface. Its text says what was wrong, what was given and what
// would work. Where the library cannot even get memory for a text, std::bad_alloc comes instead.
#pragma once

#include <cstdint>
#include <stdexcept>
#include <string>

#include "flce/types.hpp"

namespace flce {

// The numbers are part of the C ABI and never change.
enum class ErrorCode : std::int32_t {
  kOk = 0,
  kInvalidArgument = 1,   // shapes, dtypes, options, null pointers, overlapping memory
  kUnsupported = 2,       // a combination that this method or build refuses; the text names another
  kOutOfBudget = 3,       // no method fits; the text names the smallest budget that works
  kTargetOutOfRange = 4,  // a target outside [0, V) that is not ignore_index; names row and value
  kWorkspaceTooSmall = 5,
  kDevice = 6,  // the device or its driver reported a failure
  kInternal = 7,
  kOutOfMemory = 8,  // the system or the card has none left; the text says for what
};

class FLCE_API Error : public std::runtime_error {
 public:
  Error(ErrorCode code, const std::string& text) : std::runtime_error(text), code_(code) {}
  ErrorCode code() const noexcept { return code_; }

 private:
  ErrorCode code_;
};

}  // namespace flce
