// SPDX-License-Identifier: Apache-2.0
// The reader of a Hugging Face config.json. Sizes that it accepts are sizes that can be planned.
#include <cmath>

#include "fuzz_common.hpp"
#include "io/model_config.hpp"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const auto bytes = std::as_bytes(std::span(data, size));
  flce::fuzz::only_throws_error([&] {
    const flce::io::ModelConfig config =
        flce::io::parse_model_config({bytes, "config.json", nullptr});
    flce::fuzz::demand(config.hidden_size > 0 && config.vocab_size > 0, "sizes are positive");
    std::int64_t weight_bytes = 0;
    const bool overflows =
        __builtin_mul_overflow(config.hidden_size, config.vocab_size * 8, &weight_bytes);
    flce::fuzz::demand(!overflows, "the weight's bytes fit in 63 bits");
    flce::fuzz::demand(std::isfinite(config.scale()) && config.scale() > 0, "the scale is usable");
  });
  return 0;
}
