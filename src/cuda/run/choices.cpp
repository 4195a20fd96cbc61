// SPDX-License-Identifier: Apache-2.0
// The table that `flce tune` prints rows for.
#include "cuda/run/choices.hpp"

#include <array>

namespace flce::cuda {
namespace {

constexpr std::array<const char*, 5> kNames{"logits", "grad_hidden", "grad_weight",
                                            "grad_weight_acc", "plain"};

// No rows yet: the first candidate is taken.
constexpr std::array<Choice, 0> kChoices{};

}  // namespace

const char* name_of(Product product) noexcept { return kNames[static_cast<std::size_t>(product)]; }

const Choice* find_choice(std::string_view device, Product product, std::int64_t tokens) {
  const Choice* best = nullptr;
  for (const Choice& choice : kChoices) {
    if (choice.device != device || choice.product != product || choice.min_tokens > tokens) {
      continue;
    }
    if (best == nullptr || choice.min_tokens > best->min_tokens) best = &choice;
  }
  return best;
}

}  // namespace flce::cuda
