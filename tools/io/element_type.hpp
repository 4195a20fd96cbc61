// SPDX-License-Identifier: Apache-2.0
// Element types as files name them. Safetensors files may hold types that FLCE does not compute
// with; their size must be known all the same, to check that the file's offsets are right.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string_view>

#include "flce/types.hpp"

namespace flce::io {

struct ElementType {
  std::string_view name;       // in safetensors: "F32"
  int bits = 0;                // of one element
  Dtype dtype = Dtype::kNone;  // kNone: FLCE does not compute with it
  std::string_view npy;        // numpy's descr: "<f4"; empty where dtype is kNone
};

inline constexpr std::string_view kSupportedNames = "F64, F32, F16, BF16, I64, I32";
inline constexpr std::size_t kMaxRank = 64;  // of any tensor; numpy's own limit

// Null for Dtype::kNone, for a name that safetensors does not know, for an unknown descr.
const ElementType* type_of_dtype(Dtype dtype) noexcept;
const ElementType* type_of_name(std::string_view safetensors_name) noexcept;
const ElementType* type_of_descr(std::string_view npy_descr) noexcept;

// Bytes of a dense tensor. Nothing if a dimension is negative, if the bits are no whole number of
// bytes, or if the product overflows, of the dimensions that are not 0: then also strides are safe.
std::optional<std::int64_t> byte_count(std::span<const std::int64_t> shape, int bits) noexcept;

}  // namespace flce::io
