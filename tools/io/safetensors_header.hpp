// SPDX-License-Identifier: Apache-2.0
// The JSON header of a .safetensors file, read as a stream of events: no document is built, so the
// memory is that of the entries, and nesting is refused where it begins.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "io/safetensors.hpp"

namespace flce::io {

struct SafetensorsHeader {
  std::vector<SafetensorsEntry> entries;  // in the header's order, names unchecked
  Metadata metadata;
};

SafetensorsHeader parse_safetensors_header(std::string_view json, const std::string& source);

}  // namespace flce::io
