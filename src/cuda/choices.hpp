// SPDX-License-Identifier: Apache-2.0
// Which of cuBLASLt's candidates measured best, by product and shape class. Its own first one is up
// to 6 % from its best (docs/measured.md). Pure data: no device is asked here.
#pragma once

#include <cstdint>
#include <string_view>

#include "flce/plan.hpp"

namespace flce::cuda {

enum class Product {
  kLogits,         // hidden . weight^T -> f32
  kGradHidden,     // gradient . weight -> the problem's type
  kGradWeight,     // gradient^T . hidden -> a 16-bit type
  kGradWeightAcc,  // the same, into f32
  kPlain,          // anything else: no choice is known
};
const char* name_of(Product product) noexcept;

struct Choice {
  std::string_view device;  // DeviceCaps::name
  Product product;
  // The row with the most tokens that a chunk reaches counts, and of those the one with the most
  // rows of the head that the product sees.
  std::int64_t min_tokens;
  std::int64_t min_vocab;
  std::string_view tile;  // for people: "168x128"
  std::string_view cluster;
  int tile_id;  // cuBLASLt's numbers (cublasLtMatmulTile_t, cublasLtClusterShape_t)
  int cluster_id;
};

// The choice for 16-bit inputs, or null where none is known.
const Choice* find_choice(std::string_view device, Product product, std::int64_t tokens,
                          std::int64_t vocab);

}  // namespace flce::cuda
