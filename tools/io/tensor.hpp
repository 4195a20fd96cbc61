// SPDX-License-Identifier: Apache-2.0
// Tensors between files and the library: dense, row-major, named. A TensorView looks at somebody
// else's bytes, a LoadedTensor keeps the file that it looks into alive, a Tensor owns its memory.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "flce/types.hpp"

namespace flce::io {

using Shape = std::vector<std::int64_t>;

struct TensorView {
  std::string name;    // "hidden"
  std::string source;  // the file, for messages; empty if there is none
  Dtype dtype = Dtype::kNone;
  Shape shape;
  std::span<const std::byte> bytes;  // as many as shape and dtype say
};

struct LoadedTensor {
  TensorView view;                    // bytes aligned to the element size
  std::shared_ptr<const void> owner;  // keeps view.bytes alive; null: the caller does
};

// Zeroed memory aligned to 64. Throws Error{kInvalidArgument} for a shape with a negative dimension
// or too many bytes, and when the system does not give the memory.
class Tensor {
 public:
  Tensor(std::string name, Dtype dtype, Shape shape);

  std::byte* data() noexcept { return data_.get(); }
  TensorView view() const;

 private:
  struct Release {
    void operator()(std::byte* data) const noexcept;
  };
  std::string name_;
  Dtype dtype_;
  Shape shape_;
  std::size_t size_bytes_ = 0;
  std::unique_ptr<std::byte, Release> data_;
};

// `view` itself if its bytes are aligned to the element size, otherwise a copy that is.
LoadedTensor aligned(TensorView view, std::shared_ptr<const void> owner);

// The library's views on the same memory, which must outlive them. Files are mapped read-only: use
// views of a TensorView as inputs, and those of a Tensor as inputs or outputs.
// as_matrix needs 2 dimensions, as_vector 1, or none for a single number; otherwise they throw
// Error{kInvalidArgument}: "tensor 'hidden' has shape (3, 4, 5); expected 2 dimensions (N, H)".
MatrixView as_matrix(const TensorView& tensor, std::string_view letters = "(N, H)");
VectorView as_vector(const TensorView& tensor, std::string_view letters = "(N)");
MatrixView as_matrix(Tensor& tensor, std::string_view letters = "(N, H)");
VectorView as_vector(Tensor& tensor, std::string_view letters = "(N)");

// Throws Error{kInvalidArgument} if dtype, shape and the number of bytes do not go together.
void check_tensor(const TensorView& tensor);

}  // namespace flce::io
