// SPDX-License-Identifier: Apache-2.0
// The tensors that `flce run` reads: named as in a .safetensors file, or one .npy file each.
#pragma once

#include <map>
#include <string>
#include <string_view>

#include "flce/flce.hpp"
#include "io/tensor.hpp"

namespace flce::cli {

// "hidden, weight, target, ...": every name that a file may hold.
std::string known_tensors();

class InputFiles {
 public:
  // Refuses a tensor whose name it does not know: nothing in a file goes unread.
  static InputFiles from_safetensors(const std::string& path);
  // Name -> path.
  static InputFiles from_npy(const std::map<std::string, std::string>& paths);

  // Views on all inputs of the library. Throws Error{kInvalidArgument} if hidden, weight or target
  // is missing, or a tensor has the wrong number of dimensions.
  Inputs inputs() const;
  // Null if it was not given. "grad_weight" and "grad_bias" are starting values of the outputs.
  const io::TensorView* find(std::string_view name) const;

 private:
  std::map<std::string, io::LoadedTensor, std::less<>> tensors_;
};

}  // namespace flce::cli
