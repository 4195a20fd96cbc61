// SPDX-License-Identifier: Apache-2.0
// What libflce_cuda.so gives to libflce.so: the backend that runs, and the services behind
// flce/device.hpp. One object of the process, made by the one function that the library exports.
//
// Both libraries come from one build: the version handed over must be equal, and Error passes from
// one to the other.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "backend/backend.hpp"
#include "flce/device.hpp"

namespace flce {

class CudaFloor {
 public:
  virtual ~CudaFloor() = default;
  virtual void run(FloorProducts::Kind kind, void* stream) const = 0;
};

class CudaLibrary {
 public:
  virtual ~CudaLibrary() = default;

  // Why nothing of what follows works here, but kernels(); empty if it does.
  virtual const std::string& refusal() const = 0;
  virtual const Backend& backend() const = 0;
  virtual std::vector<std::string> kernels() const = 0;

  virtual std::vector<CudaDevice> devices() const = 0;
  virtual CudaLibraries libraries() const = 0;
  virtual int current_device() const = 0;
  virtual void set_device(int index) const = 0;
  virtual void synchronize() const = 0;

  virtual void* allocate(std::uint64_t bytes) const = 0;  // null: none left
  virtual void free(void* memory, int device) const = 0;
  virtual void copy_to_device(void* to, const void* from, std::uint64_t bytes) const = 0;
  virtual void copy_to_host(void* to, const void* from, std::uint64_t bytes) const = 0;
  virtual void fill(void* memory, std::byte value, std::uint64_t bytes) const = 0;
  virtual std::uint64_t device_used_bytes() const = 0;

  virtual void* make_stream() const = 0;
  virtual void destroy_stream(void* stream) const = 0;
  virtual void synchronize_stream(void* stream) const = 0;
  virtual void* make_event() const = 0;
  virtual void destroy_event(void* event) const = 0;
  virtual void record(void* event, void* stream) const = 0;
  virtual double seconds_between(void* first, void* second) const = 0;
  virtual void begin_capture(void* stream) const = 0;
  virtual void* end_capture(void* stream) const = 0;
  virtual void replay(void* graph, void* stream) const = 0;
  virtual void destroy_graph(void* graph) const = 0;

  virtual std::unique_ptr<CudaFloor> make_floor(const MatrixView& hidden, const MatrixView& weight,
                                                bool allow_tf32) const = 0;
  virtual std::vector<TunedProduct> tune(std::int64_t tokens, std::int64_t hidden,
                                         std::int64_t vocab, Dtype dtype, int rounds) const = 0;
  virtual RowPass measure_row_pass(std::int64_t tokens, std::int64_t vocab, Dtype dtype,
                                   int rounds) const = 0;
  virtual double relative_error(const MatrixView& got, const MatrixView& want) const = 0;
};

// The loaded library, or null; `refusal` then says why there is none.
const CudaLibrary* cuda_library();
const std::string& cuda_library_refusal();
// The library, even if it refuses; null if it could not be loaded.
const CudaLibrary* cuda_library_found();

}  // namespace flce

// Exported by libflce_cuda.so. Null if `version` is not its own.
extern "C" __attribute__((visibility("default"))) const flce::CudaLibrary* flce_cuda_library(
    const char* version);
