// SPDX-License-Identifier: Apache-2.0
// The .safetensors reader. The tensors that it accepts must come out the same after writing and
// reading again.
#include <algorithm>
#include <vector>

#include "fuzz_common.hpp"
#include "io/safetensors.hpp"

using flce::io::LoadedTensor;
using flce::io::Safetensors;
using flce::io::SafetensorsEntry;
using flce::io::TensorView;

namespace {

void check_round_trip(const Safetensors& first, const std::vector<LoadedTensor>& tensors) {
  std::vector<TensorView> views;
  for (const LoadedTensor& tensor : tensors) views.push_back(tensor.view);
  const std::vector<std::byte> file = flce::io::encode_safetensors(views, first.metadata());
  const Safetensors second({file, "again.safetensors", nullptr});
  flce::fuzz::demand(second.metadata() == first.metadata(), "metadata survive");
  flce::fuzz::demand(second.entries().size() == views.size(), "no tensor is lost");
  for (const TensorView& view : views) {
    const LoadedTensor again = second.tensor(view.name);
    flce::fuzz::demand(again.view.dtype == view.dtype, "dtype survives");
    flce::fuzz::demand(again.view.shape == view.shape, "shape survives");
    flce::fuzz::demand(std::ranges::equal(again.view.bytes, view.bytes), "bytes survive");
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const auto bytes = std::as_bytes(std::span(data, size));
  flce::fuzz::only_throws_error([&] {
    const Safetensors file({bytes, "fuzz.safetensors", nullptr});
    std::vector<LoadedTensor> tensors;
    for (const SafetensorsEntry& entry : file.entries()) {
      flce::fuzz::only_throws_error([&] { tensors.push_back(file.tensor(entry.name)); });
    }
    for (const LoadedTensor& tensor : tensors) flce::fuzz::touch(tensor.view.bytes);
    check_round_trip(file, tensors);
  });
  return 0;
}
