// SPDX-License-Identifier: Apache-2.0
// The words for element types, methods, reductions and slots: one table each, read both ways.
#include <array>
#include <string>
#include <string_view>

#include "core/check.hpp"
#include "flce/flce.hpp"

namespace flce {
namespace {

constexpr std::array kDtypeNames{"none", "f64", "f32", "bf16", "f16", "i64", "i32"};
constexpr auto kFirstIndexDtype = static_cast<std::size_t>(Dtype::kI64);
constexpr std::array<std::int64_t, 7> kDtypeSizes{0, 8, 4, 2, 2, 8, 4};
constexpr std::array kMethodNames{"auto",      "naive",       "chunked",      "fused",
                                  "recompute", "naive-eager", "chunked-eager"};
constexpr std::array kReductionNames{"none", "sum", "mean"};
constexpr std::array kDeviceNames{"cpu", "cuda"};
constexpr std::array kRouteNames{"auto", "portable", "hopper"};
constexpr std::array kSlotNames{
    "row_state",       "coefficients",    "reduction",     "kept",
    "tile_max",        "tile_stats",      "hidden_packed", "hidden_by_token",
    "grad_hidden_acc", "grad_weight_acc", "grad_bias_acc", "bias",
    "class_weight",    "gradient_packed", "weight_packed", "topk",
    "thread_scratch",  "gemm_scratch",    "token_rows",    "target_sums",
    "smoothing",       "hidden_parts"};
static_assert(kSlotNames.size() == kNumSlots);
static_assert(kMethodNames.size() == kNumMethods);

template <std::size_t Size, typename Enum>
const char* name_in(const std::array<const char*, Size>& names, Enum value) noexcept {
  const auto i = static_cast<std::size_t>(value);
  return i < Size ? names[i] : "unknown";
}

// Looks at names[first] and the ones behind it, before names[end].
template <typename Enum, std::size_t Size>
Enum find_in(const std::array<const char*, Size>& names, std::string_view name,
             std::string_view what, std::size_t first = 0, std::size_t end = Size) {
  std::string known;
  for (std::size_t i = first; i < end; ++i) {
    if (name == names[i]) return static_cast<Enum>(i);
    known += (known.empty() ? "" : ", ") + std::string(names[i]);
  }
  fail(ErrorCode::kInvalidArgument, "unknown {} '{}'; known: {}", what, name, known);
}

}  // namespace

std::int64_t size_of(Dtype dtype) noexcept {
  const auto i = static_cast<std::size_t>(dtype);
  return i < kDtypeSizes.size() ? kDtypeSizes[i] : 0;
}

const char* name_of(Dtype dtype) noexcept { return name_in(kDtypeNames, dtype); }
const char* name_of(Method method) noexcept { return name_in(kMethodNames, method); }
const char* name_of(Reduction reduction) noexcept { return name_in(kReductionNames, reduction); }
const char* name_of(DeviceKind kind) noexcept { return name_in(kDeviceNames, kind); }

bool has_chunks(Method method) noexcept {
  return method != Method::kNaive && method != Method::kNaiveEager;
}
const char* name_of(Route route) noexcept { return name_in(kRouteNames, route); }
const char* name_of(Slot slot) noexcept { return name_in(kSlotNames, slot); }

// "none" is the absence of one, which nobody asks for by name.
Dtype dtype_of(std::string_view name) { return find_in<Dtype>(kDtypeNames, name, "dtype", 1); }
Dtype real_dtype_of(std::string_view name) {
  return find_in<Dtype>(kDtypeNames, name, "dtype", 1, kFirstIndexDtype);
}
Dtype index_dtype_of(std::string_view name) {
  return find_in<Dtype>(kDtypeNames, name, "dtype of class indices", kFirstIndexDtype);
}
Method method_of(std::string_view name) { return find_in<Method>(kMethodNames, name, "method"); }
Route route_of(std::string_view name) { return find_in<Route>(kRouteNames, name, "route"); }
Reduction reduction_of(std::string_view name) {
  return find_in<Reduction>(kReductionNames, name, "reduction");
}

}  // namespace flce
