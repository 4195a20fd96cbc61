// SPDX-License-Identifier: Apache-2.0
#include "support/storage.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <iterator>
#include <map>
#include <mutex>
#include <random>
#include <stdexcept>

#include "support/rng.hpp"

namespace flce_test {
namespace {

using flce::Dtype;

constexpr std::byte kPoison{0xFF};

std::size_t canary_bytes() { return has_canaries() ? 128 : 0; }

// Every living block, by its first byte.
struct Blocks {
  std::mutex mutex;
  std::map<const std::byte*, Block*> by_address;
};
Blocks& blocks() {
  static Blocks all;
  return all;
}

template <typename T>
void store(std::byte* at, T value) {
  std::memcpy(at, &value, sizeof(T));
}

template <typename T>
T load(const std::byte* at) {
  T value;
  std::memcpy(&value, at, sizeof(T));
  return value;
}

void encode(Dtype dtype, double value, std::byte* at) {
  switch (dtype) {
    case Dtype::kF64:
      return store(at, value);
    case Dtype::kF32:
      return store(at, static_cast<float>(value));
    case Dtype::kBF16:
      return store(at, oracle::encode_bf16(oracle::round_to(oracle::Format::kBF16, value)));
    case Dtype::kF16:
      return store(at, oracle::encode_f16(oracle::round_to(oracle::Format::kF16, value)));
    case Dtype::kI64:
      return store(at, static_cast<std::int64_t>(value));
    case Dtype::kI32:
      return store(at, static_cast<std::int32_t>(value));
    case Dtype::kNone:
      break;
  }
  throw std::logic_error("storage without an element type");
}

double decode(Dtype dtype, const std::byte* at) {
  switch (dtype) {
    case Dtype::kF64:
      return load<double>(at);
    case Dtype::kF32:
      return load<float>(at);
    case Dtype::kBF16:
      return oracle::decode_bf16(load<std::uint16_t>(at));
    case Dtype::kF16:
      return oracle::decode_f16(load<std::uint16_t>(at));
    case Dtype::kI64:
      return static_cast<double>(load<std::int64_t>(at));
    case Dtype::kI32:
      return load<std::int32_t>(at);
    case Dtype::kNone:
      break;
  }
  throw std::logic_error("storage without an element type");
}

}  // namespace

std::uint64_t fresh_seed() {
  if (const char* text = std::getenv("FLCE_TEST_SEED")) return std::strtoull(text, nullptr, 10);
  std::random_device device;
  return device();
}

oracle::Format format_of(Dtype dtype) {
  if (dtype == Dtype::kBF16) return oracle::Format::kBF16;
  if (dtype == Dtype::kF16) return oracle::Format::kF16;
  if (dtype == Dtype::kF32) return oracle::Format::kF32;
  return oracle::Format::kF64;
}

double round_to(Dtype dtype, double value) { return oracle::round_to(format_of(dtype), value); }

void round_all(Dtype dtype, std::vector<double>& values) {
  for (double& value : values) value = round_to(dtype, value);
}

bool has_canaries() {
#if defined(__SANITIZE_ADDRESS__)
  return false;
#else
  static const bool wanted = [] {
    const char* text = std::getenv("FLCE_TEST_CANARIES");
    return text == nullptr || std::strcmp(text, "off") != 0;
  }();
  return wanted;
#endif
}

Block::Block(std::size_t bytes) : bytes_(bytes) {
  const std::size_t all = std::max<std::size_t>(bytes + 2 * canary_bytes(), 1);
  all_.reset(static_cast<std::byte*>(::operator new(all, std::align_val_t(kAlignment))));
  std::memset(all_.get(), static_cast<int>(kPoison), all);
  data_ = all_.get() + canary_bytes();
  const std::lock_guard lock(blocks().mutex);
  blocks().by_address[all_.get()] = this;
}

Block::~Block() {
  const std::lock_guard lock(blocks().mutex);
  blocks().by_address.erase(all_.get());
}

std::span<std::byte> Block::all() const {
  return {all_.get(), std::max<std::size_t>(bytes_ + 2 * canary_bytes(), 1)};
}

Block* Block::around(const void* address) {
  const auto* at = static_cast<const std::byte*>(address);
  const std::lock_guard lock(blocks().mutex);
  const auto next = blocks().by_address.upper_bound(at);
  if (next == blocks().by_address.begin()) return nullptr;
  Block* block = std::prev(next)->second;
  const std::span<std::byte> all = block->all();
  // The end counts: an empty matrix behind an offset begins there.
  return at <= all.data() + all.size() ? block : nullptr;
}

bool Block::canaries_intact() const {
  const auto intact = [](const std::byte* from) {
    return std::all_of(from, from + canary_bytes(), [](std::byte b) { return b == kPoison; });
  };
  return intact(all_.get()) && intact(data_ + bytes_);
}

Storage::Storage(const Place& place) : place_(place) {
  const std::int64_t size = flce::size_of(place.dtype);
  const bool empty = place.rows == 0 || place.cols == 0;
  const std::int64_t stride = std::abs(place.row_stride);
  const std::int64_t span = empty ? 0 : (place.rows - 1) * stride + place.cols;
  block_ = std::make_shared<Block>(static_cast<std::size_t>((place.offset + span) * size));
  const std::int64_t first = place.row_stride < 0 && !empty ? (place.rows - 1) * stride : 0;
  origin_ = block_->data() + (place.offset + first) * size;
}

std::byte* Storage::element(std::int64_t row, std::int64_t col) const {
  return origin_ + (row * place_.row_stride + col) * flce::size_of(place_.dtype);
}

void Storage::write(const std::vector<double>& values) {
  for (std::int64_t i = 0; i < place_.rows; ++i) {
    for (std::int64_t j = 0; j < place_.cols; ++j) {
      encode(place_.dtype, values[i * place_.cols + j], element(i, j));
    }
  }
}

void Storage::write(const std::vector<std::int64_t>& values) {
  for (std::int64_t i = 0; i < place_.rows; ++i) {
    if (place_.dtype == Dtype::kI32) {
      store(element(i, 0), static_cast<std::int32_t>(values[i]));
    } else {
      store(element(i, 0), values[i]);
    }
  }
}

std::vector<double> Storage::read() const {
  std::vector<double> values;
  if (!*this) return values;
  values.reserve(static_cast<std::size_t>(place_.rows * place_.cols));
  for (std::int64_t i = 0; i < place_.rows; ++i) {
    for (std::int64_t j = 0; j < place_.cols; ++j) {
      values.push_back(decode(place_.dtype, element(i, j)));
    }
  }
  return values;
}

std::vector<std::int64_t> Storage::read_integers() const {
  std::vector<std::int64_t> values;
  for (const double value : read()) values.push_back(static_cast<std::int64_t>(value));
  return values;
}

flce::MatrixView Storage::matrix() const {
  if (!*this) return {};
  return {origin_, place_.rows, place_.cols, place_.row_stride, 1, place_.dtype};
}

flce::VectorView Storage::vector() const {
  if (!*this) return {};
  return {origin_, place_.rows, place_.row_stride, place_.dtype};
}

void Storage::seal() {
  if (!*this) return;
  const auto bytes = block_->span();
  sealed_.assign(bytes.begin(), bytes.end());
}

std::string Storage::first_difference(bool gaps_only) const {
  if (!*this) return {};
  if (!block_->canaries_intact()) return "the bytes around the memory were written";
  const auto bytes = block_->span();
  std::vector<bool> owned(bytes.size(), false);
  const std::int64_t size = flce::size_of(place_.dtype);
  for (std::int64_t i = 0; gaps_only && i < place_.rows && place_.cols > 0; ++i) {
    const auto begin = owned.begin() + (element(i, 0) - bytes.data());
    std::fill(begin, begin + place_.cols * size, true);
  }
  for (std::size_t at = 0; at < bytes.size(); ++at) {
    if (!owned[at] && bytes[at] != sealed_[at]) {
      return fmt::format("byte {} of {} was written ({} rows of {}, stride {}, {})", at,
                         bytes.size(), place_.rows, place_.cols, place_.row_stride,
                         flce::name_of(place_.dtype));
    }
  }
  return {};
}

std::string Storage::changed() const { return first_difference(false); }
std::string Storage::damaged() const { return first_difference(true); }

}  // namespace flce_test
