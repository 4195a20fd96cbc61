// SPDX-License-Identifier: Apache-2.0
// Memory for the results that a problem asks for, and the library's views on it. Used by every
// command that calls the library.
#pragma once

#include <cstdint>
#include <memory>
#include <string_view>
#include <vector>

#include "flce/flce.hpp"
#include "io/tensor.hpp"

namespace flce::cli {

// One result that a problem asks for. A vector has one column.
struct OutputShape {
  std::string_view name;
  VectorView Outputs::*vector = nullptr;  // one of the two
  MatrixView Outputs::*matrix = nullptr;
  Dtype dtype = Dtype::kNone;
  std::int64_t rows = 0;
  std::int64_t cols = 1;
};
// Sizes, dtypes and wants of `problem` count; its optional dtypes may be kNone for "the default".
std::vector<OutputShape> output_shapes(const Problem& problem);
io::Shape shape_of(const OutputShape& shape);
// Lets the view that `shape` is about look at `data`, dense.
void set_view(const OutputShape& shape, void* data, Outputs& outputs);

// What a problem may be posed by before anything is allocated.
Outputs views_without_memory(const Problem& problem);

// Without the gradients that `problem` does not want.
Outputs wanted_of(const Problem& problem, Outputs outputs);
std::uint64_t output_bytes(const Problem& problem);

// Results named as the library names them: "loss", "grad_hidden", "topk_index", ...
class OutputTensors {
 public:
  explicit OutputTensors(const Problem& problem);

  const Outputs& views() const noexcept { return views_; }
  // Null if it was not asked for.
  io::Tensor* find(std::string_view name) const noexcept;
  std::vector<io::TensorView> tensors() const;

 private:
  struct Named {
    std::string_view name;
    std::unique_ptr<io::Tensor> tensor;
  };
  Outputs views_;
  std::vector<Named> named_;
};

// The element type of per-token results: f64 for f64 problems, else f32.
constexpr Dtype result_dtype(Dtype dtype) { return dtype == Dtype::kF64 ? dtype : Dtype::kF32; }

}  // namespace flce::cli
