// SPDX-License-Identifier: Apache-2.0
// The table that `flce tune` prints rows for.
#include "cuda/choices.hpp"

#include <fmt/format.h>

#include <array>
#include <string>
#include <tuple>

#include "core/dtypes.hpp"
#include "core/text.hpp"

namespace flce::cuda {
namespace {

constexpr std::array<const char*, 5> kNames{"logits", "grad_hidden", "grad_weight",
                                            "grad_weight_acc", "plain"};

// Measured in bf16 with cuBLASLt 13.1 at H=4096 and H=2304, V=8192 to 256000, chunks of 4096 to
// 16384 tokens (docs/kernels/cuda.md): milliseconds of the choice against those of the first
// candidate. grad_hidden has none: there the first candidate is the best one, or within 1 % of it.
constexpr std::array kChoices{
    Choice{"h200", Product::kLogits, 2048, 8192, "168x128", "1x2", 197, 5},         // 0.35, 0.36
    Choice{"h200", Product::kLogits, 2048, 24576, "256x128", "1x2", 24, 5},         // 1.49, 1.50
    Choice{"h200", Product::kLogits, 2048, 65536, "168x128", "1x2", 197, 5},        // 6.11, 6.57
    Choice{"h200", Product::kGradWeight, 2048, 16384, "128x160", "2x1", 29, 3},     // 6.03, 6.42
    Choice{"h200", Product::kGradWeight, 16384, 16384, "256x128", "1x2", 24, 5},    // 25.5, 26.2
    Choice{"h200", Product::kGradWeightAcc, 2048, 16384, "128x160", "2x1", 29, 3},  // 6.18, 7.01
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
    if (best == nullptr || std::tie(choice.min_tokens, choice.min_vocab) >
                               std::tie(best->min_tokens, best->min_vocab)) {
      best = &choice;
    }
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
