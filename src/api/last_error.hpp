// SPDX-License-Identifier: Apache-2.0
// The text of each thread's last failure, for the C interface.
#pragma once

#include "flce/error.hpp"

namespace flce {

// Keeps the text, cut to a kilobyte. Where there is no memory for it, a shorter one stands for it.
void keep_last_error(ErrorCode code, const char* text) noexcept;
// "" before the first. Valid until this thread's next call.
const char* last_error() noexcept;
void clear_last_error() noexcept;

}  // namespace flce
