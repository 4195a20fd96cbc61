// SPDX-License-Identifier: Apache-2.0
// Normal data for matrices of any size: half a billion elements take a second or two.
#pragma once

#include <vector>

#include "flce/types.hpp"
#include "train_random.hpp"

namespace flce::cli {

// size * (about normal) + mean[column]; an empty `mean` adds nothing. Element i is made of number i
// of the stream, so the bits are the same for any number of threads.
void fill_normal(const MatrixView& matrix, const Random& random, double size,
                 const std::vector<double>& mean);

}  // namespace flce::cli
