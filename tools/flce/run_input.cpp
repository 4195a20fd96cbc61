// SPDX-License-Identifier: Apache-2.0
#include "run_input.hpp"

#include <fmt/core.h>

#include <algorithm>
#include <utility>

#include "io/npy.hpp"
#include "io/safetensors.hpp"
#include "io/text.hpp"

namespace flce::cli {
namespace {

struct KnownMatrix {
  const char* name;
  MatrixView Inputs::*view;
  const char* letters;
};
struct KnownVector {
  const char* name;
  VectorView Inputs::*view;
  const char* letters;
};

constexpr KnownMatrix kMatrices[] = {
    {"hidden", &Inputs::hidden, "(N, H)"},
    {"weight", &Inputs::weight, "(V, H)"},
};
constexpr KnownVector kVectors[] = {
    {"target", &Inputs::target, "(N)"},
    {"bias", &Inputs::bias, "(V)"},
    {"class_weight", &Inputs::class_weight, "(V)"},
    {"token_weight", &Inputs::token_weight, "(N)"},
    {"temperature", &Inputs::temperature, "(N)"},
    {"normalizer", &Inputs::normalizer, "(1)"},
    {"grad_output", &Inputs::grad_output, "(1) or (N)"},
    {"grad_entropy", &Inputs::grad_entropy, "(N)"},
};
constexpr const char* kStarts[] = {"grad_weight", "grad_bias"};

bool is_known(std::string_view name) {
  const auto named = [&](const auto& known) { return name == known.name; };
  return std::any_of(std::begin(kMatrices), std::end(kMatrices), named) ||
         std::any_of(std::begin(kVectors), std::end(kVectors), named) ||
         std::find(std::begin(kStarts), std::end(kStarts), name) != std::end(kStarts);
}

}  // namespace

std::string known_tensors() {
  std::string names;
  const auto add = [&](const char* name) {
    names += (names.empty() ? "" : ", ") + std::string(name);
  };
  for (const KnownMatrix& matrix : kMatrices) add(matrix.name);
  for (const KnownVector& vector : kVectors) add(vector.name);
  for (const char* start : kStarts) add(start);
  return names;
}

InputFiles InputFiles::from_safetensors(const std::string& path) {
  const io::Safetensors file = io::read_safetensors(path);
  InputFiles files;
  for (const io::SafetensorsEntry& entry : file.entries()) {
    if (!is_known(entry.name)) {
      io::fail(path, fmt::format("unknown tensor '{}'; known: {}", io::printable(entry.name),
                                 known_tensors()));
    }
    files.tensors_.emplace(entry.name, file.tensor(entry.name));
  }
  for (const char* needed : {"hidden", "weight", "target"}) {
    if (files.find(needed) == nullptr) {
      io::fail(path, fmt::format("has no tensor '{}'; needed: hidden (N, H), weight (V, H), "
                                 "target (N)",
                                 needed));
    }
  }
  return files;
}

InputFiles InputFiles::from_npy(const std::map<std::string, std::string>& paths) {
  InputFiles files;
  for (const auto& [name, path] : paths) {
    // numpy has no bfloat16: two raw bytes are how it keeps one.
    io::LoadedTensor tensor = io::read_npy(path, io::RawPairs::kAreBf16);
    tensor.view.name = name;
    files.tensors_.emplace(name, std::move(tensor));
  }
  return files;
}

Inputs InputFiles::inputs() const {
  Inputs inputs;
  for (const KnownMatrix& matrix : kMatrices) {
    if (const io::TensorView* tensor = find(matrix.name)) {
      inputs.*matrix.view = io::as_matrix(*tensor, matrix.letters);
    }
  }
  for (const KnownVector& vector : kVectors) {
    if (const io::TensorView* tensor = find(vector.name)) {
      inputs.*vector.view = io::as_vector(*tensor, vector.letters);
    }
  }
  return inputs;
}

const io::TensorView* InputFiles::find(std::string_view name) const {
  const auto found = tensors_.find(name);
  return found == tensors_.end() ? nullptr : &found->second.view;
}

}  // namespace flce::cli
