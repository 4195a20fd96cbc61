// SPDX-License-Identifier: Apache-2.0
// The .npy reader. What it accepts must come out the same after writing and reading again.
#include <algorithm>
#include <string>
#include <vector>

#include "fuzz_common.hpp"
#include "io/npy.hpp"

using flce::io::LoadedTensor;
using flce::io::RawPairs;
using flce::io::TensorView;

namespace {

void check_round_trip(const TensorView& first) {
  const std::string header = flce::io::npy_header(first);
  const auto header_bytes = std::as_bytes(std::span(header));
  std::vector<std::byte> file(header_bytes.begin(), header_bytes.end());
  file.insert(file.end(), first.bytes.begin(), first.bytes.end());
  const LoadedTensor second = flce::io::parse_npy({file, "again.npy", nullptr}, RawPairs::kAreBf16);
  flce::fuzz::demand(second.view.dtype == first.dtype, "dtype survives");
  flce::fuzz::demand(second.view.shape == first.shape, "shape survives");
  flce::fuzz::demand(std::ranges::equal(second.view.bytes, first.bytes), "bytes survive");
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const auto bytes = std::as_bytes(std::span(data, size));
  for (const RawPairs raw_pairs : {RawPairs::kRefuse, RawPairs::kAreBf16}) {
    flce::fuzz::only_throws_error([&] {
      const LoadedTensor tensor = flce::io::parse_npy({bytes, "fuzz.npy", nullptr}, raw_pairs);
      flce::fuzz::touch(tensor.view.bytes);
      check_round_trip(tensor.view);
      flce::io::as_vector(tensor.view);
      flce::io::as_matrix(tensor.view);
    });
  }
  return 0;
}
