// SPDX-License-Identifier: Apache-2.0
// The table that `flce tune` prints rows for.
#include "cuda/choices.hpp"

#include <fmt/format.h>

#include <array>
#include <string>

#include "core/dtypes.hpp"
#include "core/text.hpp"

namespace flce::cuda {
namespace {

constexpr std::array<const char*, 5> kNames{"logits", "grad_hidden", "grad_weight",
                                            "grad_weight_acc", "plain"};

// Measured at H=4096, V=128256 in bf16 with cuBLASLt 13.1 (docs/measured.md): milliseconds of the
// choice against those of the first candidate. Narrow pieces of the vocabulary were not measured.
constexpr std::array kChoices{
    Choice{"h200", Product::kLogits, 2048, 16384, "168x128", "1x2", 197, 5},        // 6.15, 6.66
    Choice{"h200", Product::kGradHidden, 2048, 16384, "128x256", "2x1", 23, 3},     // 5.21, 5.27
    Choice{"h200", Product::kGradWeight, 2048, 16384, "128x160", "2x1", 29, 3},     // 5.64, 6.02
    Choice{"h200", Product::kGradWeightAcc, 2048, 16384, "128x160", "2x1", 29, 3},  // 5.87, 6.55
};

}  // namespace

const char* name_of(Product product) noexcept { return kNames[static_cast<std::size_t>(product)]; }

const Choice* find_choice(std::string_view device, Product product, std::int64_t tokens,
                          std::int64_t vocab) {
  const Choice* best = nullptr;
  for (const Choice& choice : kChoices) {
    const bool serves = choice.device == device && choice.product == product &&
                        choice.min_tokens <= tokens && choice.min_vocab <= vocab;
    if (!serves) continue;
    if (best == nullptr || choice.min_tokens > best->min_tokens) best = &choice;
  }
  return best;
}

}  // namespace flce::cuda

namespace flce {

std::string describe_products(const Plan& plan) {
  if (plan.route != Route::kPortable) return {};
  const Dtype dtype = plan.problem.dtype;
  const bool is_16bit = dtype == Dtype::kBF16 || dtype == Dtype::kF16;
  const std::int64_t vocab = plan.method == Method::kRecompute ? plan.slab : plan.problem.vocab;
  const bool sums = plan.num_chunks > 1 || grad_weight_dtype_of(plan.problem) == Dtype::kF32;
  std::string text;
  for (const cuda::Product product :
       {cuda::Product::kLogits, cuda::Product::kGradHidden,
        sums ? cuda::Product::kGradWeightAcc : cuda::Product::kGradWeight}) {
    const cuda::Choice* choice =
        is_16bit ? cuda::find_choice(view_text(plan.caps.name), product, plan.chunk, vocab)
                 : nullptr;
    text += text.empty() ? "" : ", ";
    text += cuda::name_of(product);
    text += choice == nullptr ? std::string(" cuBLASLt's first")
                              : fmt::format(" {} cluster {}", choice->tile, choice->cluster);
  }
  return text;
}

}  // namespace flce
