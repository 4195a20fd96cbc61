// SPDX-License-Identifier: Apache-2.0
// A CUDA backend that plans and cannot run: its booking is the one of DESIGN sections 7 and 8, its
// verbs refuse. Lets `flce plan` answer for cards that are not at hand.
#pragma once

#include "backend/backend.hpp"

namespace flce {

const Backend& cuda_plan_backend();

// Books the slots of a tiling on a card (book.cpp).
void book_cuda(const Problem& problem, const Tiling& tiling, const Kept& kept, Ledger& ledger);

// Whether the bf16 path with exponentials in 16 bits serves the problem (DESIGN section 8); else
// the portable one with f32 logits does.
bool uses_odds_form(const Problem& problem);

}  // namespace flce
