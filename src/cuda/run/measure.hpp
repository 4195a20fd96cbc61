// SPDX-License-Identifier: Apache-2.0
// What measurements share: device memory of their own, a clock of the device, medians.
#pragma once

#include <algorithm>
#include <cstdint>
#include <vector>

#include "core/check.hpp"
#include "cuda/run/current.hpp"

namespace flce::cuda {

class Block {
 public:
  explicit Block(std::uint64_t bytes) {
    const bool is_given = cudaMalloc(&data_, bytes) == cudaSuccess;
    if (!is_given) cudaGetLastError();  // or the next launch would seem to have failed
    require(is_given, ErrorCode::kOutOfMemory, "no memory for {} bytes of a measurement's operands",
            bytes);
  }
  ~Block() { cudaFree(data_); }
  Block(const Block&) = delete;
  Block& operator=(const Block&) = delete;
  void* data() const { return data_; }

 private:
  void* data_ = nullptr;
};

// Times work on the default stream, and waits for it.
class Stopwatch {
 public:
  Stopwatch() {
    check_cuda(cudaEventCreate(&start_), "making an event");
    check_cuda(cudaEventCreate(&stop_), "making an event");
  }
  ~Stopwatch() {
    cudaEventDestroy(start_);
    cudaEventDestroy(stop_);
  }
  Stopwatch(const Stopwatch&) = delete;
  Stopwatch& operator=(const Stopwatch&) = delete;

  template <typename Work>
  double seconds(Work work) const {
    check_cuda(cudaEventRecord(start_, nullptr), "recording an event");
    work();
    check_cuda(cudaEventRecord(stop_, nullptr), "recording an event");
    check_cuda(cudaEventSynchronize(stop_), "the measured work");
    float milliseconds = 0.0F;
    check_cuda(cudaEventElapsedTime(&milliseconds, start_, stop_), "reading events");
    return 1e-3 * milliseconds;
  }

 private:
  cudaEvent_t start_ = nullptr;
  cudaEvent_t stop_ = nullptr;
};

inline double median_of(std::vector<double> values) {
  const auto half = values.begin() + static_cast<std::ptrdiff_t>(values.size() / 2);
  std::nth_element(values.begin(), half, values.end());
  return *half;
}

}  // namespace flce::cuda
