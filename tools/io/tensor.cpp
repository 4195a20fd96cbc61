// SPDX-License-Identifier: Apache-2.0
// Memory of tensors and their conversion to the library's views.
#include "io/tensor.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <new>
#include <optional>
#include <utility>

#include "flce/error.hpp"
#include "io/element_type.hpp"
#include "io/text.hpp"

namespace flce::io {
namespace {

constexpr std::align_val_t kAlignment{64};

std::string described(const TensorView& tensor) {
  const std::string where = tensor.source.empty() ? "" : tensor.source + ": ";
  return fmt::format("{}tensor {} has shape {}", where, in_quotes(tensor.name),
                     shape_text(tensor.shape));
}

[[noreturn]] void fail_tensor(const TensorView& tensor, std::string_view text) {
  throw Error(ErrorCode::kInvalidArgument, described(tensor) + "; " + std::string(text));
}

std::int64_t checked_bytes(const TensorView& tensor) {
  const ElementType* type = type_of_dtype(tensor.dtype);
  if (type == nullptr) {
    fail_tensor(tensor, fmt::format("no element type was given; give one of {}", kSupportedNames));
  }
  if (tensor.shape.size() > kMaxRank) {
    fail_tensor(tensor, fmt::format("expected at most {} dimensions", kMaxRank));
  }
  const std::optional<std::int64_t> bytes = byte_count(tensor.shape, type->bits);
  if (!bytes) fail_tensor(tensor, "expected dimensions >= 0 and fewer than 2^60 bytes");
  return *bytes;
}

}  // namespace

Tensor::Tensor(std::string name, Dtype dtype, Shape shape)
    : name_(std::move(name)), dtype_(dtype), shape_(std::move(shape)) {
  const TensorView wanted{name_, "", dtype_, shape_, {}};
  size_bytes_ = static_cast<std::size_t>(checked_bytes(wanted));
  const std::size_t allocated = std::max<std::size_t>(size_bytes_, 1);  // never a null pointer
  void* memory = ::operator new(allocated, kAlignment, std::nothrow);
  if (memory == nullptr) {
    fail_tensor(wanted, fmt::format("the system did not give its {} bytes", size_bytes_));
  }
  data_.reset(static_cast<std::byte*>(memory));
  std::memset(memory, 0, allocated);
}

void Tensor::Release::operator()(std::byte* data) const noexcept {
  ::operator delete(data, kAlignment);
}

TensorView Tensor::view() const { return {name_, "", dtype_, shape_, {data_.get(), size_bytes_}}; }

LoadedTensor aligned(TensorView view, std::shared_ptr<const void> owner) {
  const auto element_bytes = static_cast<std::uintptr_t>(type_of_dtype(view.dtype)->bits / 8);
  if (reinterpret_cast<std::uintptr_t>(view.bytes.data()) % element_bytes == 0) {
    return {std::move(view), std::move(owner)};
  }
  const auto copy = std::make_shared<Tensor>(view.name, view.dtype, view.shape);
  if (!view.bytes.empty()) std::memcpy(copy->data(), view.bytes.data(), view.bytes.size());
  view.bytes = copy->view().bytes;
  return {std::move(view), copy};
}

void check_tensor(const TensorView& tensor) {
  const std::int64_t expected = checked_bytes(tensor);
  if (static_cast<std::uint64_t>(expected) != tensor.bytes.size()) {
    fail_tensor(tensor, fmt::format("expected {} bytes, got {}", expected, tensor.bytes.size()));
  }
}

// The library's views have one pointer for inputs and outputs; it writes to outputs only.
static void* writable(const TensorView& tensor) noexcept {
  return const_cast<std::byte*>(tensor.bytes.data());
}

MatrixView as_matrix(const TensorView& tensor, std::string_view letters) {
  check_tensor(tensor);
  if (tensor.shape.size() != 2) {
    fail_tensor(tensor, fmt::format("expected 2 dimensions {}", letters));
  }
  return {writable(tensor), tensor.shape[0], tensor.shape[1], tensor.shape[1], 1, tensor.dtype};
}

VectorView as_vector(const TensorView& tensor, std::string_view letters) {
  check_tensor(tensor);
  if (tensor.shape.size() > 1) {
    fail_tensor(tensor, fmt::format("expected 1 dimension {}", letters));
  }
  return {writable(tensor), tensor.shape.empty() ? 1 : tensor.shape[0], 1, tensor.dtype};
}

MatrixView as_matrix(Tensor& tensor, std::string_view letters) {
  return as_matrix(std::as_const(tensor).view(), letters);
}

VectorView as_vector(Tensor& tensor, std::string_view letters) {
  return as_vector(std::as_const(tensor).view(), letters);
}

}  // namespace flce::io
