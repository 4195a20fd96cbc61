// SPDX-License-Identifier: Apache-2.0
// The words of the public interface: element types, methods, reductions and views on memory.
//
// Letters used in every comment: N tokens, H hidden size, V vocabulary, C tokens in a chunk.
#pragma once

#include <cstdint>
#include <string_view>

#if defined(_WIN32)
#define FLCE_API
#else
#define FLCE_API __attribute__((visibility("default")))
#endif

namespace flce {

// Element types. The numbers are part of the C ABI and never change. `kNone` means "absent".
enum class Dtype : std::int32_t { kNone = 0, kF64, kF32, kBF16, kF16, kI64, kI32 };

// How the logits are kept; docs/methods.md explains each. The eager variants keep and round what
// the PyTorch code that people run does: baselines for a comparison. Any problem can be planned
// with them; what they run is the loss without options.
enum class Method : std::int32_t {
  kAuto = 0,
  kNaive,
  kChunked,
  kFused,
  kRecompute,
  kNaiveEager,
  kChunkedEager,
};
inline constexpr int kNumMethods = 7;  // kAuto included

enum class Reduction : std::int32_t { kNone = 0, kSum, kMean };

// Who calls whom: everything in one call, or a forward call and a backward call later.
enum class Pass : std::int32_t { kRun = 0, kForwardBackward };

// What is known of the gradient of the loss (the "upstream") when the gradients are made.
enum class Upstream : std::int32_t {
  kOne = 0,   // 1 for a reduced loss; a vector of ones for Reduction::kNone
  kScalar,    // one number, read when the gradients are made
  kPerToken,  // N numbers; only with Reduction::kNone
};

enum class DeviceKind : std::int32_t { kCpu = 0, kCuda };

// Bytes of one element; 0 for kNone.
FLCE_API std::int64_t size_of(Dtype dtype) noexcept;
// "f64", "f32", "bf16", "f16", "i64", "i32", "none".
FLCE_API const char* name_of(Dtype dtype) noexcept;
FLCE_API const char* name_of(Method method) noexcept;
FLCE_API const char* name_of(Reduction reduction) noexcept;
FLCE_API const char* name_of(DeviceKind kind) noexcept;
// The inverse of name_of, but that "none" is no dtype. Throws Error{kInvalidArgument} that lists
// the known names.
FLCE_API Dtype dtype_of(std::string_view name);
FLCE_API Dtype real_dtype_of(std::string_view name);   // of hidden, weight and gradients only
FLCE_API Dtype index_dtype_of(std::string_view name);  // of targets only
FLCE_API Method method_of(std::string_view name);
FLCE_API Reduction reduction_of(std::string_view name);

// A matrix in somebody else's memory. Element (i, j) is at data + i*row_stride + j*col_stride, in
// elements. Inputs may have any row stride (0 for an expanded row), outputs need
// row_stride >= cols; col_stride must be 1, another one is refused by name.
struct MatrixView {
  void* data = nullptr;
  std::int64_t rows = 0;
  std::int64_t cols = 0;
  std::int64_t row_stride = 0;
  std::int64_t col_stride = 1;
  Dtype dtype = Dtype::kNone;

  explicit operator bool() const noexcept { return dtype != Dtype::kNone; }
};

// A vector in somebody else's memory, any stride (in elements; 0 repeats one element in inputs).
struct VectorView {
  void* data = nullptr;
  std::int64_t size = 0;
  std::int64_t stride = 1;
  Dtype dtype = Dtype::kNone;

  explicit operator bool() const noexcept { return dtype != Dtype::kNone; }
};

}  // namespace flce
