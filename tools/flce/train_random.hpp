// SPDX-License-Identifier: Apache-2.0
// Random numbers that are the same bits on every machine: splitmix64 and Box-Muller. Used by all
// commands that make data of their own.
#pragma once

#include <cmath>
#include <cstdint>
#include <numbers>

namespace flce::cli {

class Random {
 public:
  explicit Random(std::uint64_t seed)
      : state_(seed * 0x9E3779B97F4A7C15ULL + 0x632BE59BD9B4E019ULL) {}

  std::uint64_t next() {
    std::uint64_t z = (state_ += 0x9E3779B97F4A7C15ULL);
    z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9ULL;
    z = (z ^ (z >> 27)) * 0x94D049BB133111EBULL;
    return z ^ (z >> 31);
  }
  // As `count` calls of next() whose numbers nobody wants: several threads share one stream so.
  void skip(std::int64_t count) {
    state_ += static_cast<std::uint64_t>(count) * 0x9E3779B97F4A7C15ULL;
  }
  // In [0, 1).
  double uniform() { return static_cast<double>(next() >> 11) * 0x1p-53; }
  // In [0, count); count > 0 and far below 2^64, so that the bias of the remainder is nothing.
  std::int64_t below(std::int64_t count) {
    return static_cast<std::int64_t>(next() % static_cast<std::uint64_t>(count));
  }
  // Mean 0, standard deviation 1.
  double normal() {
    if (has_spare_) {
      has_spare_ = false;
      return spare_;
    }
    const double radius = std::sqrt(-2.0 * std::log(1.0 - uniform()));
    const double angle = 2.0 * std::numbers::pi * uniform();
    spare_ = radius * std::sin(angle);
    has_spare_ = true;
    return radius * std::cos(angle);
  }

 private:
  std::uint64_t state_;
  double spare_ = 0.0;
  bool has_spare_ = false;
};

}  // namespace flce::cli
