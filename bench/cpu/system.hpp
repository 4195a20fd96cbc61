// SPDX-License-Identifier: Apache-2.0
// The words of the CPU benchmark: a case, its data, and a system that is timed on it. Ours and the
// rivals stand behind one interface, share inputs, outputs and threads, and are timed in turn.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "flce/types.hpp"
#include "workers.hpp"

namespace flce::bench {

struct Case {
  std::int64_t tokens = 0;
  std::int64_t hidden = 0;
  std::int64_t vocab = 0;
  Dtype dtype = Dtype::kF32;
  int threads = 1;

  double flops() const {  // three products
    return 6.0 * static_cast<double>(tokens) * static_cast<double>(hidden) *
           static_cast<double>(vocab);
  }
};

// Memory on large pages where the system gives them, touched once so that no timed run pays for a
// fresh page.
class Buffer {
 public:
  Buffer() = default;
  explicit Buffer(std::uint64_t bytes);

  std::byte* data() const { return data_.get(); }
  std::uint64_t size() const { return size_; }
  template <typename T>
  T* as() const {
    return reinterpret_cast<T*>(data_.get());
  }

 private:
  struct Free {
    void operator()(std::byte* data) const;
  };
  std::unique_ptr<std::byte, Free> data_;
  std::uint64_t size_ = 0;
};

// Random normal hidden states and weights (the weight divided by sqrt(H)), uniform targets, and the
// outputs that every system writes. Elements are of the case's dtype.
struct Data {
  Data(const Case& shape, Workers& workers);

  Buffer hidden;
  Buffer weight;
  Buffer target;  // i64
  Buffer grad_hidden;
  Buffer grad_weight;
  float loss = 0.0F;
};

// How far a system's results are from the first system's, relative (Frobenius for gradients).
struct Differences {
  double loss = 0.0;
  double grad_hidden = 0.0;
  double grad_weight = 0.0;
};

// A copy of what one system computed.
struct Reference {
  Reference(const Case& shape, const Data& data);
  Differences against(const Case& shape, const Data& data, Workers& workers) const;

  float loss;
  Buffer grad_hidden;
  Buffer grad_weight;
};

struct SystemFacts {
  std::string system;  // unique name, no commas
  std::string method;
  std::string kernel;   // what code really ran, as the library says it
  std::string version;  // of the library
  std::int64_t chunk = 0;
  std::uint64_t extra_bytes = 0;  // beyond inputs and outputs
};

class System {
 public:
  virtual ~System() = default;
  // Variants to choose from, best guess first: 0 .. num_variants - 1.
  virtual int num_variants() const { return 1; }
  virtual void prepare(int variant) = 0;  // not timed
  virtual void run() = 0;                 // loss and both gradients into the case's data
  virtual SystemFacts facts() const = 0;
};

// What a rival's module exports under the name kRivalEntry: a system, or null and a reason.
// `variant_name` is appended to the system's name.
using RivalEntry = System* (*)(const Case& shape, Data& data, Workers& workers,
                               const char* variant_name, std::string& refusal);
inline constexpr const char* kRivalEntry = "flce_bench_rival";

// "fused" or "naive" through the public interface.
std::unique_ptr<System> make_ours(const std::string& method, const Case& shape, Data& data);

// A system by the name that --systems takes; null and a reason when it is not to be had here.
std::unique_ptr<System> make_system(const std::string& name, const Case& shape, Data& data,
                                    Workers& workers, const std::string& onednn_isa,
                                    std::string& refusal);

}  // namespace flce::bench
