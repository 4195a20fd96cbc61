// SPDX-License-Identifier: Apache-2.0
#include <sys/mman.h>

#include <cmath>
#include <cstdlib>
#include <cstring>
#include <new>

#include "bf16.hpp"
#include "system.hpp"

namespace flce::bench {
namespace {

constexpr std::uint64_t kLargePage = 2 << 20;
constexpr std::int64_t kBlock = 1 << 16;

std::uint64_t mix(std::uint64_t x) {  // splitmix64
  x += 0x9e3779b97f4a7c15ULL;
  x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9ULL;
  x = (x ^ (x >> 27)) * 0x94d049bb133111ebULL;
  return x ^ (x >> 31);
}

// Two independent normal numbers from one counter (Box and Muller).
void normal_pair(std::uint64_t counter, float* pair) {
  const std::uint64_t bits = mix(counter);
  const float u = (static_cast<float>(bits >> 40) + 0.5F) * 0x1p-24F;
  const float angle = static_cast<float>(bits & 0xffffffU) * (0x1p-24F * 6.2831853F);
  const float radius = std::sqrt(-2.0F * std::log(u));
  pair[0] = radius * std::cos(angle);
  pair[1] = radius * std::sin(angle);
}

void fill_normal(Buffer& buffer, Dtype dtype, std::int64_t count, float scale, std::uint64_t seed,
                 Workers& workers) {
  workers.run((count + kBlock - 1) / kBlock, [&](std::int64_t block) {
    const std::int64_t end = std::min(count, (block + 1) * kBlock);
    for (std::int64_t i = block * kBlock; i < end; i += 2) {
      float pair[2];
      normal_pair((seed << 48) + static_cast<std::uint64_t>(i), pair);
      for (std::int64_t j = i; j < std::min(i + 2, end); ++j) {
        const float value = pair[j - i] * scale;
        if (dtype == Dtype::kF32) {
          buffer.as<float>()[j] = value;
        } else {
          buffer.as<std::uint16_t>()[j] = f32_to_bf16(value);
        }
      }
    }
  });
}

float element(const Buffer& buffer, Dtype dtype, std::int64_t i) {
  return dtype == Dtype::kF32 ? buffer.as<float>()[i] : bf16_to_f32(buffer.as<std::uint16_t>()[i]);
}

double relative_difference(const Buffer& a, const Buffer& b, Dtype dtype, Workers& workers) {
  const auto count = static_cast<std::int64_t>(a.size()) / size_of(dtype);
  const std::int64_t blocks = (count + kBlock - 1) / kBlock;
  std::vector<double> apart(static_cast<std::size_t>(blocks));
  std::vector<double> norm(static_cast<std::size_t>(blocks));
  workers.run(blocks, [&](std::int64_t block) {
    double sums[2] = {};
    for (std::int64_t i = block * kBlock; i < std::min(count, (block + 1) * kBlock); ++i) {
      const double x = element(a, dtype, i);
      const double y = element(b, dtype, i);
      sums[0] += (x - y) * (x - y);
      sums[1] += x * x;
    }
    apart[static_cast<std::size_t>(block)] = sums[0];
    norm[static_cast<std::size_t>(block)] = sums[1];
  });
  double sums[2] = {};
  for (std::size_t block = 0; block < apart.size(); ++block) {
    sums[0] += apart[block];
    sums[1] += norm[block];
  }
  return sums[1] > 0.0 ? std::sqrt(sums[0] / sums[1]) : NAN;
}

Buffer copy_of(const Buffer& buffer) {
  Buffer copy(buffer.size());
  std::memcpy(copy.data(), buffer.data(), buffer.size());
  return copy;
}

}  // namespace

Buffer::Buffer(std::uint64_t bytes) : size_(bytes) {
  const std::uint64_t rounded = (std::max<std::uint64_t>(bytes, 1) + kLargePage - 1) / kLargePage;
  void* memory = std::aligned_alloc(kLargePage, rounded * kLargePage);
  if (memory == nullptr) throw std::bad_alloc();
  ::madvise(memory, rounded * kLargePage, MADV_HUGEPAGE);
  std::memset(memory, 0, rounded * kLargePage);
  data_.reset(static_cast<std::byte*>(memory));
}

void Buffer::Free::operator()(std::byte* data) const { std::free(data); }

Data::Data(const Case& shape, Workers& workers) {
  const auto size = static_cast<std::uint64_t>(size_of(shape.dtype));
  const std::int64_t hidden_count = shape.tokens * shape.hidden;
  const std::int64_t weight_count = shape.vocab * shape.hidden;
  hidden = Buffer(static_cast<std::uint64_t>(hidden_count) * size);
  weight = Buffer(static_cast<std::uint64_t>(weight_count) * size);
  target = Buffer(static_cast<std::uint64_t>(shape.tokens) * sizeof(std::int64_t));
  grad_hidden = Buffer(hidden.size());
  grad_weight = Buffer(weight.size());
  fill_normal(hidden, shape.dtype, hidden_count, 1.0F, 1, workers);
  fill_normal(weight, shape.dtype, weight_count, 1.0F / std::sqrt(static_cast<float>(shape.hidden)),
              2, workers);
  for (std::int64_t i = 0; i < shape.tokens; ++i) {
    const std::uint64_t bits = mix((3ULL << 48) + static_cast<std::uint64_t>(i));
    target.as<std::int64_t>()[i] =
        static_cast<std::int64_t>(bits % static_cast<std::uint64_t>(shape.vocab));
  }
}

Reference::Reference(const Case&, const Data& data)
    : loss(data.loss),
      grad_hidden(copy_of(data.grad_hidden)),
      grad_weight(copy_of(data.grad_weight)) {}

Differences Reference::against(const Case& shape, const Data& data, Workers& workers) const {
  Differences seen;
  seen.loss = std::abs(static_cast<double>(data.loss) - loss) / std::abs(loss);
  seen.grad_hidden = relative_difference(grad_hidden, data.grad_hidden, shape.dtype, workers);
  seen.grad_weight = relative_difference(grad_weight, data.grad_weight, shape.dtype, workers);
  return seen;
}

}  // namespace flce::bench
