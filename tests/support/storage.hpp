// SPDX-License-Identifier: Apache-2.0
// Typed memory with everything around the elements poisoned: bytes of 0xFF are NaN in every float
// type and -1 in the integers, so a read outside shows in the result and a write outside is found.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <new>
#include <span>
#include <string>
#include <vector>

#include "flce/flce.hpp"
#include "oracle/formats.hpp"

namespace flce_test {

inline constexpr std::size_t kAlignment = 64;

oracle::Format format_of(flce::Dtype dtype);
double round_to(flce::Dtype dtype, double value);
void round_all(flce::Dtype dtype, std::vector<double>& values);

// In sanitizer builds, and with FLCE_TEST_CANARIES=off for tools that watch a device's memory,
// there are none, so that the tool sees the true ends.
bool has_canaries();

// 64-aligned bytes, all poisoned, with canaries on both sides.
class Block {
 public:
  explicit Block(std::size_t bytes);
  ~Block();
  Block(const Block&) = delete;
  Block& operator=(const Block&) = delete;
  std::byte* data() const { return data_; }
  std::span<std::byte> span() const { return {data_, bytes_}; }
  // With the canaries.
  std::span<std::byte> all() const;
  bool canaries_intact() const;
  // The block that holds this address, or null.
  static Block* around(const void* address);

 private:
  struct Free {
    void operator()(std::byte* p) const { ::operator delete(p, std::align_val_t(kAlignment)); }
  };
  std::unique_ptr<std::byte, Free> all_;
  std::byte* data_ = nullptr;
  std::size_t bytes_ = 0;
};

// Where the elements of a matrix lie. A vector of stride s is a matrix of one column and row
// stride s.
struct Place {
  flce::Dtype dtype = flce::Dtype::kNone;
  std::int64_t rows = 0;
  std::int64_t cols = 1;
  std::int64_t row_stride = 1;  // may be 0 (one row for all) or negative
  std::int64_t offset = 0;      // elements from a 64-byte boundary
};

class Storage {
 public:
  Storage() = default;  // absent: empty views
  explicit Storage(const Place& place);

  explicit operator bool() const { return block_ != nullptr; }
  void write(const std::vector<double>& values);
  void write(const std::vector<std::int64_t>& values);
  std::vector<double> read() const;
  std::vector<std::int64_t> read_integers() const;

  flce::MatrixView matrix() const;
  flce::VectorView vector() const;

  // Remembers all bytes. Afterwards `changed` says whether any byte differs, `damaged` whether one
  // does that belongs to no element; both give the first place, or an empty text.
  void seal();
  std::string changed() const;
  std::string damaged() const;

 private:
  std::byte* element(std::int64_t row, std::int64_t col) const;
  std::string first_difference(bool gaps_only) const;

  Place place_;
  std::shared_ptr<Block> block_;
  std::byte* origin_ = nullptr;
  std::vector<std::byte> sealed_;
};

}  // namespace flce_test
