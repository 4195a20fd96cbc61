// SPDX-License-Identifier: Apache-2.0
#include "bench_order.hpp"

#include <numeric>
#include <utility>

#include "train_random.hpp"

namespace flce::cli {

std::vector<std::size_t> shuffled_order(std::size_t count, std::uint64_t seed, std::int64_t round) {
  std::vector<std::size_t> order(count);
  std::iota(order.begin(), order.end(), std::size_t{0});
  // Rounds take their numbers from streams of their own: those of neighbouring rounds would overlap
  // if a round only began further along in one stream.
  Random random(Random(seed).next() ^ static_cast<std::uint64_t>(round));
  for (std::size_t left = count; left > 1; --left) {
    const auto other = static_cast<std::size_t>(random.below(static_cast<std::int64_t>(left)));
    std::swap(order[left - 1], order[other]);
  }
  return order;
}

}  // namespace flce::cli
