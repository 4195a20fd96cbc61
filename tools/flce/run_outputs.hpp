// SPDX-License-Identifier: Apache-2.0
// Memory for the results that a problem asks for, and the library's views on it. Used by every
// command that calls the library.
#pragma once

#include <memory>
#include <string_view>
#include <vector>

#include "flce/flce.hpp"
#include "io/tensor.hpp"

namespace flce::cli {

// Results named as the library names them: "loss", "grad_hidden", "topk_index", ...
class OutputTensors {
 public:
  // Sizes, dtypes and wants of `problem` count; its optional dtypes may be kNone for "the default".
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
  void add_vector(std::string_view name, VectorView Outputs::*view, Dtype dtype, std::int64_t size);
  void add_matrix(std::string_view name, MatrixView Outputs::*view, Dtype dtype, std::int64_t rows,
                  std::int64_t cols);

  Outputs views_;
  std::vector<Named> named_;
};

// The element type of per-token results: f64 for f64 problems, else f32.
constexpr Dtype result_dtype(Dtype dtype) { return dtype == Dtype::kF64 ? dtype : Dtype::kF32; }

}  // namespace flce::cli
