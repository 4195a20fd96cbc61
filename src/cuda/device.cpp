// SPDX-License-Identifier: Apache-2.0
// The public services of flce/device.hpp: each hands on to the loaded library, or throws why there
// is none.
#include "flce/device.hpp"

#include <atomic>
#include <utility>

#include "core/check.hpp"
#include "cuda/library.hpp"
#include "plan/caps.hpp"

namespace flce {
namespace {

const CudaLibrary& library() {
  const CudaLibrary* loaded = cuda_library();
  require(loaded != nullptr, ErrorCode::kUnsupported, "{}", cuda_library_refusal());
  return *loaded;
}

// Asked for once: the driver takes its time, and each planning for the current card looks here.
const std::vector<CudaDevice>& cards() {
  static const std::vector<CudaDevice> all = library().devices();
  return all;
}

// Bytes of all DeviceMemory.
std::atomic<std::uint64_t> allocated{0};
std::atomic<std::uint64_t> peak_allocated{0};

void note_allocation(std::uint64_t bytes) {
  const std::uint64_t now = allocated.fetch_add(bytes) + bytes;
  std::uint64_t seen = peak_allocated.load();
  while (seen < now && !peak_allocated.compare_exchange_weak(seen, now)) {
  }
}

}  // namespace

const std::string& cuda_refusal() { return cuda_library_refusal(); }
std::vector<std::string> cuda_kernels() {
  const CudaLibrary* found = cuda_library_found();
  return found != nullptr ? found->kernels() : std::vector<std::string>();
}
std::vector<CudaDevice> cuda_devices() { return cards(); }
CudaLibraries cuda_libraries() { return library().libraries(); }
int cuda_current_device() { return library().current_device(); }
void cuda_set_device(int index) { library().set_device(index); }
void cuda_synchronize() { library().synchronize(); }

DeviceCaps cuda_caps(int index) {
  const std::vector<CudaDevice>& devices = cards();
  if (index < 0) index = cuda_current_device();
  require(index < static_cast<int>(devices.size()), "there is no CUDA device {}; there are {}",
          index, devices.size());
  const CudaDevice& device = devices[static_cast<std::size_t>(index)];
  return caps_of_product(device.name, device.memory_bytes);
}

DeviceMemory::DeviceMemory(std::uint64_t bytes) {
  if (bytes == 0) return;
  const CudaLibrary& cuda = library();
  device_ = cuda.current_device();
  data_ = static_cast<std::byte*>(cuda.allocate(bytes));
  require(
      data_ != nullptr, ErrorCode::kOutOfMemory,
      "no memory for {} on CUDA device {}, where {} are in use; a smaller budget or chunk needs "
      "less",
      format_bytes(bytes), device_, format_bytes(cuda.device_used_bytes()));
  size_ = static_cast<std::size_t>(bytes);
  note_allocation(bytes);
}

DeviceMemory::~DeviceMemory() {
  if (data_ == nullptr) return;
  library().free(data_, device_);
  allocated.fetch_sub(size_);
}

DeviceMemory::DeviceMemory(DeviceMemory&& other) noexcept
    : data_(std::exchange(other.data_, nullptr)),
      size_(std::exchange(other.size_, 0)),
      device_(other.device_) {}

DeviceMemory& DeviceMemory::operator=(DeviceMemory&& other) noexcept {
  std::swap(data_, other.data_);
  std::swap(size_, other.size_);
  std::swap(device_, other.device_);
  return *this;
}

void DeviceMemory::upload(std::span<const std::byte> from, std::uint64_t offset) {
  require(offset <= size_ && from.size() <= size_ - offset,
          "{} bytes from {} on do not fit into {} bytes of device memory", from.size(), offset,
          size_);
  if (!from.empty()) library().copy_to_device(data_ + offset, from.data(), from.size());
}

void DeviceMemory::download(std::span<std::byte> to, std::uint64_t offset) const {
  require(offset <= size_ && to.size() <= size_ - offset,
          "{} bytes from {} on are more than the {} bytes of device memory", to.size(), offset,
          size_);
  if (!to.empty()) library().copy_to_host(to.data(), data_ + offset, to.size());
}

void DeviceMemory::fill(std::byte value) {
  if (size_ > 0) library().fill(data_, value, size_);
}

CudaMemoryUse cuda_memory_use() {
  return {allocated.load(), peak_allocated.load(), library().device_used_bytes()};
}
void cuda_reset_peak_memory() { peak_allocated.store(allocated.load()); }

CudaStream::CudaStream() : handle_(library().make_stream()) {}
CudaStream::~CudaStream() { library().destroy_stream(handle_); }
void CudaStream::synchronize() const { library().synchronize_stream(handle_); }

CudaTimer::CudaTimer() {
  for (void*& event : events_) event = library().make_event();
}
CudaTimer::~CudaTimer() {
  for (void* event : events_) library().destroy_event(event);
}
void CudaTimer::start(void* stream) { library().record(events_[0], stream); }
void CudaTimer::stop(void* stream) { library().record(events_[1], stream); }
double CudaTimer::seconds() const { return library().seconds_between(events_[0], events_[1]); }

CudaGraph::~CudaGraph() {
  if (executable_ != nullptr) library().destroy_graph(executable_);
}
void CudaGraph::begin(void* stream) { library().begin_capture(stream); }
void CudaGraph::end(void* stream) {
  if (executable_ != nullptr) library().destroy_graph(std::exchange(executable_, nullptr));
  executable_ = library().end_capture(stream);
}
void CudaGraph::replay(void* stream) const {
  require(executable_ != nullptr, "the CUDA graph is empty; begin and end record one");
  library().replay(executable_, stream);
}

struct FloorProducts::State {
  std::unique_ptr<CudaFloor> products;
};
FloorProducts::FloorProducts(const MatrixView& hidden, const MatrixView& weight, bool allow_tf32)
    : state_(new State{library().make_floor(hidden, weight, allow_tf32)}) {}
FloorProducts::~FloorProducts() = default;
void FloorProducts::run(Kind kind, void* stream) const { state_->products->run(kind, stream); }

std::vector<TunedProduct> tune_products(std::int64_t tokens, std::int64_t hidden,
                                        std::int64_t vocab, Dtype dtype, int rounds) {
  require(tokens > 0 && hidden > 0 && vocab > 0 && rounds > 0,
          "products are tuned for tokens, hidden, vocab and rounds > 0; given {}, {}, {} and {}",
          tokens, hidden, vocab, rounds);
  return library().tune(tokens, hidden, vocab, dtype, rounds);
}

RowPass measure_row_pass(std::int64_t tokens, std::int64_t vocab, Dtype dtype, int rounds) {
  require(tokens > 0 && vocab > 0 && rounds > 0,
          "the pass is measured for tokens, vocab and rounds > 0; given {}, {} and {}", tokens,
          vocab, rounds);
  require(dtype == Dtype::kF32 || dtype == Dtype::kBF16 || dtype == Dtype::kF16,
          ErrorCode::kUnsupported, "the pass is measured for f32, bf16 and f16, not {}",
          name_of(dtype));
  return library().measure_row_pass(tokens, vocab, dtype, rounds);
}

double cuda_relative_error(const MatrixView& got, const MatrixView& want) {
  require(got.rows == want.rows && got.cols == want.cols,
          "cannot compare ({}, {}) with ({}, {}); the shapes must be equal", got.rows, got.cols,
          want.rows, want.cols);
  return library().relative_error(got, want);
}

}  // namespace flce
