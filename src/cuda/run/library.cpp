// SPDX-License-Identifier: Apache-2.0
// The object that libflce_cuda.so gives to libflce.so.
#include "cuda/library.hpp"

#include <fmt/format.h>

#include <cstring>

#include "core/check.hpp"
#include "cuda/route.hpp"
#include "cuda/run/backend.hpp"
#include "cuda/run/cublaslt.hpp"
#include "cuda/run/current.hpp"
#include "cuda/run/floor.hpp"

namespace flce::cuda {
namespace {

constexpr int kOldestCapability = 80;

cudaStream_t as_stream(void* stream) { return static_cast<cudaStream_t>(stream); }
cudaEvent_t as_event(void* event) { return static_cast<cudaEvent_t>(event); }

int attribute(cudaDeviceAttr name, int device) {
  int value = 0;
  check_cuda(cudaDeviceGetAttribute(&value, name, device), "asking a device");
  return value;
}

CudaDevice describe(int index) {
  cudaDeviceProp properties{};
  check_cuda(cudaGetDeviceProperties(&properties, index), "asking for a device's properties");
  CudaDevice device;
  device.index = index;
  device.name = properties.name;
  device.compute_capability = 10 * properties.major + properties.minor;
  device.num_sms = properties.multiProcessorCount;
  device.memory_bytes = properties.totalGlobalMem;
  device.l2_bytes = static_cast<std::uint64_t>(properties.l2CacheSize);
  device.shared_bytes =
      static_cast<std::uint64_t>(attribute(cudaDevAttrMaxSharedMemoryPerBlockOptin, index));
  return device;
}

// Why nothing can run here.
std::string find_refusal() {
  int count = 0;
  const cudaError_t status = cudaGetDeviceCount(&count);
  cudaGetLastError();
  if (status == cudaErrorInsufficientDriver) {
    int driver = 0;
    cudaDriverGetVersion(&driver);
    return driver == 0
               ? std::string(
                     "CUDA needs an NVIDIA driver, and this machine has none; device cpu works")
               : fmt::format(
                     "the NVIDIA driver knows CUDA {}.{} at most, this build needs "
                     "{}.{}; install a newer driver; device cpu works",
                     driver / 1000, driver % 1000 / 10, CUDART_VERSION / 1000,
                     CUDART_VERSION % 1000 / 10);
  }
  if (status == cudaErrorNoDevice || (status == cudaSuccess && count == 0)) {
    return "the NVIDIA driver sees no CUDA device; device cpu works";
  }
  if (status != cudaSuccess) {
    return fmt::format("CUDA does not start: {} ({}); device cpu works", cudaGetErrorString(status),
                       cudaGetErrorName(status));
  }
  int newest = 0;
  for (int i = 0; i < count; ++i) {
    int major = 0;
    int minor = 0;
    cudaDeviceGetAttribute(&major, cudaDevAttrComputeCapabilityMajor, i);
    cudaDeviceGetAttribute(&minor, cudaDevAttrComputeCapabilityMinor, i);
    newest = std::max(newest, 10 * major + minor);
  }
  if (newest < kOldestCapability) {
    return fmt::format(
        "the newest CUDA device here has compute capability {}.{}; 8.0 or newer is "
        "needed; device cpu works",
        newest / 10, newest % 10);
  }
  return cublaslt().refusal;
}

class Library final : public CudaLibrary {
 public:
  const std::string& refusal() const override { return refusal_; }
  const Backend& backend() const override { return cuda::backend(); }
  std::vector<std::string> kernels() const override {
    if (kHasHopper) return {"portable", "hopper"};
    return {"portable"};
  }

  std::vector<CudaDevice> devices() const override {
    int count = 0;
    check_cuda(cudaGetDeviceCount(&count), "counting the devices");
    std::vector<CudaDevice> all;
    for (int i = 0; i < count; ++i) all.push_back(describe(i));
    return all;
  }
  CudaLibraries libraries() const override {
    CudaLibraries all;
    check_cuda(cudaDriverGetVersion(&all.driver_version), "asking for the driver's version");
    check_cuda(cudaRuntimeGetVersion(&all.runtime_version), "asking for the runtime's version");
    all.cublaslt_version = static_cast<int>(cublaslt().version);
    all.cublaslt_path = cublaslt().path;
    return all;
  }
  int current_device() const override { return cuda::current_device(); }
  void set_device(int index) const override {
    check_cuda(cudaSetDevice(index), "changing the current device");
  }
  void synchronize() const override { check_cuda(cudaDeviceSynchronize(), "the device's work"); }

  void* allocate(std::uint64_t bytes) const override {
    void* memory = nullptr;
    const cudaError_t status = cudaMalloc(&memory, bytes);
    if (status == cudaErrorMemoryAllocation) {
      cudaGetLastError();
      return nullptr;
    }
    check_cuda(status, "allocating memory");
    return memory;
  }
  void free(void* memory, int device) const override {
    const DeviceScope scope(device);
    cudaFree(memory);
  }
  void copy_to_device(void* to, const void* from, std::uint64_t bytes) const override {
    check_cuda(cudaDeviceSynchronize(), "the device's work");
    check_cuda(cudaMemcpy(to, from, bytes, cudaMemcpyHostToDevice), "copying to the device");
    // A copy from pageable memory returns when its bytes have been staged, not when they are there,
    // and streams that do not wait for the default one would not see them.
    check_cuda(cudaDeviceSynchronize(), "copying to the device");
  }
  void copy_to_host(void* to, const void* from, std::uint64_t bytes) const override {
    check_cuda(cudaDeviceSynchronize(), "the device's work");
    check_cuda(cudaMemcpy(to, from, bytes, cudaMemcpyDeviceToHost), "copying from the device");
  }
  void fill(void* memory, std::byte value, std::uint64_t bytes) const override {
    check_cuda(cudaMemset(memory, static_cast<int>(value), bytes), "filling memory");
    check_cuda(cudaDeviceSynchronize(), "filling memory");
  }
  std::uint64_t device_used_bytes() const override {
    std::size_t free_bytes = 0;
    std::size_t all = 0;
    check_cuda(cudaMemGetInfo(&free_bytes, &all), "asking for the free memory");
    return all - free_bytes;
  }

  void* make_stream() const override {
    cudaStream_t stream = nullptr;
    check_cuda(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking), "making a stream");
    return stream;
  }
  void destroy_stream(void* stream) const override { cudaStreamDestroy(as_stream(stream)); }
  void synchronize_stream(void* stream) const override {
    check_cuda(cudaStreamSynchronize(as_stream(stream)), "the stream's work");
  }
  void* make_event() const override {
    cudaEvent_t event = nullptr;
    check_cuda(cudaEventCreate(&event), "making an event");
    return event;
  }
  void destroy_event(void* event) const override { cudaEventDestroy(as_event(event)); }
  void record(void* event, void* stream) const override {
    check_cuda(cudaEventRecord(as_event(event), as_stream(stream)), "recording an event");
  }
  double seconds_between(void* first, void* second) const override {
    float milliseconds = 0.0F;
    check_cuda(cudaEventSynchronize(as_event(second)), "the stream's work");
    check_cuda(cudaEventElapsedTime(&milliseconds, as_event(first), as_event(second)),
               "reading events");
    return 1e-3 * milliseconds;
  }
  void begin_capture(void* stream) const override {
    check_cuda(cudaStreamBeginCapture(as_stream(stream), cudaStreamCaptureModeThreadLocal),
               "beginning a CUDA graph");
  }
  void* end_capture(void* stream) const override {
    cudaGraph_t graph = nullptr;
    check_cuda(cudaStreamEndCapture(as_stream(stream), &graph), "ending a CUDA graph");
    cudaGraphExec_t executable = nullptr;
    const cudaError_t status = cudaGraphInstantiate(&executable, graph, 0);
    cudaGraphDestroy(graph);
    check_cuda(status, "making a CUDA graph");
    return executable;
  }
  void replay(void* graph, void* stream) const override {
    check_cuda(cudaGraphLaunch(static_cast<cudaGraphExec_t>(graph), as_stream(stream)),
               "replaying a CUDA graph");
  }
  void destroy_graph(void* graph) const override {
    cudaGraphExecDestroy(static_cast<cudaGraphExec_t>(graph));
  }

  std::unique_ptr<CudaFloor> make_floor(const MatrixView& hidden, const MatrixView& weight,
                                        bool allow_tf32) const override {
    return cuda::make_floor(hidden, weight, allow_tf32);
  }
  std::vector<TunedProduct> tune(std::int64_t tokens, std::int64_t hidden, std::int64_t vocab,
                                 Dtype dtype, int rounds) const override {
    return cuda::tune(tokens, hidden, vocab, dtype, rounds);
  }
  RowPass measure_row_pass(std::int64_t tokens, std::int64_t vocab, Dtype dtype,
                           int rounds) const override {
    return cuda::measure_row_pass(tokens, vocab, dtype, rounds);
  }
  double relative_error(const MatrixView& got, const MatrixView& want) const override {
    return cuda::relative_error(got, want);
  }

 private:
  std::string refusal_ = find_refusal();
};

}  // namespace
}  // namespace flce::cuda

const flce::CudaLibrary* flce_cuda_library(const char* version) {
  if (std::strcmp(version, flce::version()) != 0) return nullptr;
  static const flce::cuda::Library library;
  return &library;
}
