// SPDX-License-Identifier: Apache-2.0
// Random numbers of the tests: the same sequence for a seed on every platform.
#pragma once

#include <cmath>
#include <cstdint>
#include <initializer_list>

namespace flce_test {

class Rng {
 public:
  explicit Rng(std::uint64_t seed) : state_(seed) {}

  std::uint64_t next() {  // splitmix64
    std::uint64_t z = (state_ += 0x9E3779B97F4A7C15ULL);
    z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9ULL;
    z = (z ^ (z >> 27)) * 0x94D049BB133111EBULL;
    return z ^ (z >> 31);
  }
  double uniform() { return static_cast<double>(next() >> 11) * 0x1p-53; }  // [0, 1)
  double uniform(double low, double high) { return low + (high - low) * uniform(); }
  double normal() {
    const double radius = std::sqrt(-2.0 * std::log(1.0 - uniform()));
    return radius * std::cos(6.283185307179586 * uniform());
  }
  std::int64_t index(std::int64_t count) {
    return static_cast<std::int64_t>(next() % static_cast<std::uint64_t>(count));
  }
  bool chance(double p) { return uniform() < p; }
  template <typename T>
  T pick(std::initializer_list<T> values) {
    return values.begin()[index(static_cast<std::int64_t>(values.size()))];
  }

 private:
  std::uint64_t state_;
};

// The seed of sweeps that differ from run to run: FLCE_TEST_SEED, else from the system. Failures
// print it.
std::uint64_t fresh_seed();

}  // namespace flce_test
