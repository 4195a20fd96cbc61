// SPDX-License-Identifier: Apache-2.0
// The table of element types and the one checked product of a shape.
#include "io/element_type.hpp"

#include <algorithm>
#include <array>
#include <bit>

namespace flce::io {
namespace {

static_assert(std::endian::native == std::endian::little, "tensors are little-endian in files");

constexpr std::array kTypes = {
    ElementType{"F64", 64, Dtype::kF64, "<f8"},
    ElementType{"F32", 32, Dtype::kF32, "<f4"},
    ElementType{"F16", 16, Dtype::kF16, "<f2"},
    ElementType{"BF16", 16, Dtype::kBF16, "<V2"},
    ElementType{"I64", 64, Dtype::kI64, "<i8"},
    ElementType{"I32", 32, Dtype::kI32, "<i4"},
    ElementType{"BOOL", 8, Dtype::kNone, ""},
    ElementType{"U8", 8, Dtype::kNone, ""},
    ElementType{"I8", 8, Dtype::kNone, ""},
    ElementType{"U16", 16, Dtype::kNone, ""},
    ElementType{"I16", 16, Dtype::kNone, ""},
    ElementType{"U32", 32, Dtype::kNone, ""},
    ElementType{"U64", 64, Dtype::kNone, ""},
    ElementType{"C64", 64, Dtype::kNone, ""},
    ElementType{"F4", 4, Dtype::kNone, ""},
    ElementType{"F6_E2M3", 6, Dtype::kNone, ""},
    ElementType{"F6_E3M2", 6, Dtype::kNone, ""},
    ElementType{"F8_E4M3", 8, Dtype::kNone, ""},
    ElementType{"F8_E5M2", 8, Dtype::kNone, ""},
    ElementType{"F8_E8M0", 8, Dtype::kNone, ""},
    ElementType{"F8_E4M3FNUZ", 8, Dtype::kNone, ""},
    ElementType{"F8_E5M2FNUZ", 8, Dtype::kNone, ""},
};

template <typename Value>
const ElementType* find(Value ElementType::*field, Value value) noexcept {
  const auto* found = std::ranges::find(kTypes, value, field);
  return found == kTypes.end() ? nullptr : found;
}

}  // namespace

const ElementType* type_of_dtype(Dtype dtype) noexcept {
  return dtype == Dtype::kNone ? nullptr : find(&ElementType::dtype, dtype);
}

const ElementType* type_of_name(std::string_view safetensors_name) noexcept {
  return find(&ElementType::name, safetensors_name);
}

const ElementType* type_of_descr(std::string_view npy_descr) noexcept {
  return npy_descr.empty() ? nullptr : find(&ElementType::npy, npy_descr);
}

std::optional<std::int64_t> byte_count(std::span<const std::int64_t> shape, int bits) noexcept {
  std::int64_t total = bits;
  bool empty = false;
  for (const std::int64_t dim : shape) {
    if (dim < 0) return std::nullopt;
    if (dim == 0) {
      empty = true;
    } else if (__builtin_mul_overflow(total, dim, &total)) {
      return std::nullopt;
    }
  }
  if (empty) return 0;
  if (total % 8 != 0) return std::nullopt;
  return total / 8;
}

}  // namespace flce::io
