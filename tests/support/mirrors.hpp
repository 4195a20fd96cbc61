// SPDX-License-Identifier: Apache-2.0
// Blocks of host memory (storage.hpp), byte for byte on the device of the tests (device.hpp), and
// views and spans of host memory turned into views of the mirrors.
#pragma once

#include <map>
#include <memory>
#include <span>

#include "flce/device.hpp"
#include "flce/flce.hpp"
#include "support/storage.hpp"

namespace flce_test {

// One block's bytes, at the same distance from a 64-byte boundary.
class Mirror {
 public:
  explicit Mirror(Block& block);
  std::byte* at(const void* host) const;
  void upload();
  void download() const;

 private:
  std::byte* begin() const;

  Block* block_;
  flce::DeviceMemory device_;
  std::shared_ptr<std::byte> copy_;  // where the device is other host memory
};

// All the memory of a call. A block is mirrored, and uploaded, when a view of it is first asked
// for.
class Mirrors {
 public:
  flce::MatrixView view(flce::MatrixView host);
  flce::VectorView view(flce::VectorView host);
  std::span<std::byte> span(std::span<std::byte> host);
  // Memory that nobody reads before the call writes it, or looks at after. Under a tool that finds
  // reads of such memory (there are no canaries then) it stays as it is on the device.
  std::span<std::byte> scratch(std::span<std::byte> host);
  flce::Inputs inputs(flce::Inputs host);
  flce::Outputs outputs(flce::Outputs host);

  // Everything again, in either direction.
  void upload();
  void download() const;

 private:
  struct Entry {
    Mirror mirror;
    bool is_copied = false;
  };
  const Mirror& mirror_of(const void* host, bool is_copied);

  std::map<Block*, Entry> mirrors_;
};

}  // namespace flce_test
