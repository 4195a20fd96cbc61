// SPDX-License-Identifier: Apache-2.0
#include "random_matrix.hpp"

#include <cstdint>

#include "parallel.hpp"
#include "verify_numbers.hpp"

namespace flce::cli {
namespace {

constexpr std::int64_t kElementsAtOnce = std::int64_t{1} << 18;

// Sum of four uniform numbers, scaled to standard deviation 1: near enough to a normal one, at the
// cost of one draw.
double quick_normal(Random& random) {
  const std::uint64_t bits = random.next();
  const auto part = [&](int at) { return static_cast<std::int64_t>((bits >> at) & 0xFFFFU); };
  const std::int64_t sum = part(0) + part(16) + part(32) + part(48);
  return (static_cast<double>(sum) * 0x1p-16 - 2.0) * 1.7320508;
}

// The element type is a template's, not the loop's, business: the loop runs half a billion times.
template <typename Store>
void fill_rows(const MatrixView& matrix, Random random, double size,
               const std::vector<double>& mean, std::int64_t begin, std::int64_t end,
               const Store& store) {
  random.skip(begin * matrix.cols);
  for (std::int64_t row = begin; row < end; ++row) {
    const std::int64_t start = row * matrix.row_stride;
    for (std::int64_t k = 0; k < matrix.cols; ++k) {
      const double value = size * quick_normal(random);
      store(start + k, mean.empty() ? value : value + mean[static_cast<std::size_t>(k)]);
    }
  }
}

}  // namespace

void fill_normal(const MatrixView& matrix, const Random& random, double size,
                 const std::vector<double>& mean) {
  if (matrix.cols == 0) return;
  const std::int64_t rows = kElementsAtOnce / matrix.cols + 1;
  const auto fill = [&](const auto& store) {
    in_parallel(matrix.rows, rows, [&](std::int64_t begin, std::int64_t end) {
      fill_rows(matrix, random, size, mean, begin, end, store);
    });
  };
  if (matrix.dtype == Dtype::kBF16) {
    auto* data = static_cast<std::uint16_t*>(matrix.data);
    return fill([data](std::int64_t i, double x) { data[i] = bf16_bits(static_cast<float>(x)); });
  }
  if (matrix.dtype == Dtype::kF32) {
    auto* data = static_cast<float*>(matrix.data);
    return fill([data](std::int64_t i, double x) { data[i] = static_cast<float>(x); });
  }
  fill([&](std::int64_t i, double x) { store_number(matrix.dtype, matrix.data, i, x); });
}

}  // namespace flce::cli
