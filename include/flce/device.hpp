// SPDX-License-Identifier: Apache-2.0
// CUDA devices, for callers that have no framework to give them device memory: which cards there
// are, memory on them, time on them, and what their products cost at best. Callers that have one
// (PyTorch, JAX, an own allocator) pass their pointers to flce.hpp and need nothing of this.
//
// The library loads its CUDA part (libflce_cuda.so, and cuBLASLt behind it) on the first call that
// asks for it. Where that cannot work - no driver, no card, no cuBLASLt, a build without CUDA -
// everything else works as before, and cuda_refusal() says why.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "flce/plan.hpp"
#include "flce/types.hpp"

namespace flce {

// Why CUDA cannot be used here; an empty text if it can. Looked up once.
FLCE_API const std::string& cuda_refusal();
inline bool has_cuda() { return cuda_refusal().empty(); }
// The kernels that this build's CUDA part holds, whether or not there is a card: "portable", and
// "hopper", for compute capability 9.0, if it was built with CUTLASS's headers. Empty without a
// CUDA part.
FLCE_API std::vector<std::string> cuda_kernels();

// A card as the driver describes it.
struct CudaDevice {
  int index = 0;
  std::string name;                // "NVIDIA H200"
  int compute_capability = 0;      // 90 for 9.0
  int num_sms = 0;                 // multiprocessors
  std::uint64_t memory_bytes = 0;  // of the whole card
  std::uint64_t l2_bytes = 0;
  std::uint64_t shared_bytes = 0;  // the most that one block may ask for
};
struct CudaLibraries {
  int driver_version = 0;   // 13000 for 13.0: the newest CUDA that the driver knows
  int runtime_version = 0;  // that this build was made with
  int cublaslt_version = 0;
  std::string cublaslt_path;
};
// Every card. Throws Error{kUnsupported} with cuda_refusal() if there is none to be used; so do all
// functions below.
FLCE_API std::vector<CudaDevice> cuda_devices();
FLCE_API CudaLibraries cuda_libraries();
// What the planner may know of a card: `index` as cuda_devices() numbers them, -1 for the calling
// thread's current one. The figures are those of caps_of() where the card is known by name.
FLCE_API DeviceCaps cuda_caps(int index = -1);
FLCE_API int cuda_current_device();
FLCE_API void cuda_set_device(int index);
// Waits for everything that the current device was given.
FLCE_API void cuda_synchronize();

// Bytes on the current device. Allocated and freed at once (cudaMalloc), never cached, so that what
// is in use is what is asked for. Aligned to 256 bytes. The contents of fresh memory are undefined.
class FLCE_API DeviceMemory {
 public:
  DeviceMemory() = default;
  explicit DeviceMemory(std::uint64_t bytes);
  ~DeviceMemory();
  DeviceMemory(DeviceMemory&& other) noexcept;
  DeviceMemory& operator=(DeviceMemory&& other) noexcept;
  DeviceMemory(const DeviceMemory&) = delete;
  DeviceMemory& operator=(const DeviceMemory&) = delete;

  // Device addresses: for views and workspaces, not to be read here.
  std::byte* data() const noexcept { return data_; }
  std::span<std::byte> span() const noexcept { return {data_, size_}; }
  // Copies between host and device, from byte `offset` of this memory on. Waits until it is done,
  // and for everything that was given to the device before.
  void upload(std::span<const std::byte> from, std::uint64_t offset = 0);
  void download(std::span<std::byte> to, std::uint64_t offset = 0) const;
  // Every byte.
  void fill(std::byte value);

 private:
  std::byte* data_ = nullptr;
  std::size_t size_ = 0;
  int device_ = 0;
};

// Bytes of all DeviceMemory of this process, now and at most since the last reset, and of the whole
// current device as the driver counts them (everything that lives on the card).
struct CudaMemoryUse {
  std::uint64_t allocated_bytes = 0;
  std::uint64_t peak_allocated_bytes = 0;
  std::uint64_t device_used_bytes = 0;
};
FLCE_API CudaMemoryUse cuda_memory_use();
FLCE_API void cuda_reset_peak_memory();

// A stream of the current device that waits for no other. handle() is what RunOptions::stream
// takes.
class FLCE_API CudaStream {
 public:
  CudaStream();
  ~CudaStream();
  CudaStream(const CudaStream&) = delete;
  CudaStream& operator=(const CudaStream&) = delete;
  void* handle() const noexcept { return handle_; }
  void synchronize() const;

 private:
  void* handle_ = nullptr;
};

// The time between two points of a stream, by events of the device.
class FLCE_API CudaTimer {
 public:
  CudaTimer();
  ~CudaTimer();
  CudaTimer(const CudaTimer&) = delete;
  CudaTimer& operator=(const CudaTimer&) = delete;
  void start(void* stream);
  void stop(void* stream);
  // Waits for the second point.
  double seconds() const;

 private:
  void* events_[2] = {};
};

// Work of a stream, recorded once and replayed: a CUDA graph. begin() to end() must only give work
// to the stream (RunOptions::check_targets would wait, so it cannot be recorded).
class FLCE_API CudaGraph {
 public:
  CudaGraph() = default;
  ~CudaGraph();
  CudaGraph(const CudaGraph&) = delete;
  CudaGraph& operator=(const CudaGraph&) = delete;
  void begin(void* stream);
  void end(void* stream);
  void replay(void* stream) const;

 private:
  void* executable_ = nullptr;
};

// The three matrix products of a problem on their own, in its dtype with sums in f32: the yardstick
// of every time. `usual`: cuBLASLt's first candidate, what common code takes. `hard`: the best of
// all its candidates for these shapes, found by timing them in the constructor.
class FLCE_API FloorProducts {
 public:
  enum class Kind { kUsual, kHard };
  // `hidden` (N, H) and `weight` (V, H) as for a run. Writes random-looking logits of its own.
  FloorProducts(const MatrixView& hidden, const MatrixView& weight, bool allow_tf32 = false);
  ~FloorProducts();
  FloorProducts(const FloorProducts&) = delete;
  FloorProducts& operator=(const FloorProducts&) = delete;
  void run(Kind kind, void* stream) const;

 private:
  struct State;
  std::unique_ptr<State> state_;
};

// One candidate of cuBLASLt for one product of a problem, timed. `flce tune` prints them.
struct TunedProduct {
  std::string product;  // "logits", "grad_hidden", "grad_weight", "grad_weight_acc"
  int rank = 0;         // place in cuBLASLt's own order
  std::string tile;     // "128x256"
  std::string cluster;  // "2x1", "-" before compute capability 9.0
  int tile_id = 0;      // cuBLASLt's numbers
  int cluster_id = 0;
  double seconds = 0.0;  // median of `rounds`
};
// Times the candidates of every product of (tokens of a chunk) x H x V, interleaved, on random data
// of its own; in cuBLASLt's order.
FLCE_API std::vector<TunedProduct> tune_products(std::int64_t tokens, std::int64_t hidden,
                                                 std::int64_t vocab, Dtype dtype, int rounds);

// The pass over a chunk's logits (tokens, vocab) in f32 that makes their gradient in `dtype`,
// alone, on random data of its own: medians of `rounds`.
struct RowPass {
  std::uint64_t bytes = 0;             // each logit read once, each gradient written once
  double fused_seconds = 0.0;          // by one kernel, as `fused` does it
  double apart_seconds = 0.0;          // by two, as `naive` does: logits are read twice
  double copy_bytes_per_second = 0.0;  // of a copy on the card, bytes read and written
  // Of the copy's bandwidth, by the one kernel.
  double share() const {
    return static_cast<double>(bytes) / fused_seconds / copy_bytes_per_second;
  }
};
FLCE_API RowPass measure_row_pass(std::int64_t tokens, std::int64_t vocab, Dtype dtype, int rounds);

// ||got - want|| / ||want|| over all elements, both on the current device and of equal shape;
// `want` in f64 or f32. Infinite where one has a NaN that the other has not. Waits.
FLCE_API double cuda_relative_error(const MatrixView& got, const MatrixView& want);

}  // namespace flce
