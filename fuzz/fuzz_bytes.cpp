// SPDX-License-Identifier: Apache-2.0
// flce::parse_bytes: "2GiB", "500MB", "1.5GB", "123456". A count that it accepts can be written.
#include <string_view>

#include "flce/plan.hpp"
#include "fuzz_common.hpp"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  flce::fuzz::only_throws_error([&] {
    const std::uint64_t bytes = flce::parse_bytes(text);
    flce::fuzz::demand(!flce::format_bytes(bytes).empty(), "a count has a text");
  });
  return 0;
}
