// SPDX-License-Identifier: Apache-2.0
// What both JSON readers need of nlohmann's library to be safe on foreign input.
//
// A value that becomes an object begins as Json::object(). One that turns into it at its first key
// is left half made where there is no memory, and its destructor crashes (3.11.2).
#pragma once

#include <exception>
#include <string_view>

namespace flce::io {

// The library takes a zero byte for the end of the text, so what follows it would go unread.
void refuse_zero_bytes(std::string_view json, std::string_view source);

// Throws Error{kInvalidArgument} with the library's explanation, printable and short.
[[noreturn]] void fail_json(std::string_view source, std::string_view what,
                            const std::exception& error);

}  // namespace flce::io
