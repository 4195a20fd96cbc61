// SPDX-License-Identifier: Apache-2.0
// Errors against float64 for problems of any size. Where the oracle would take too long for all
// tokens, all but a few, spread over the batch and so over the chunks, are ignored: loss and
// gradients of what remains are then right to the last digit of the oracle.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "flce/flce.hpp"
#include "verify_data.hpp"

namespace flce::cli {

// Relative errors: of the loss (the worst token's, if unreduced), and of the gradients in the
// Frobenius norm. Negative: not measured.
struct Errors {
  double loss = -1.0;
  double grad_hidden = -1.0;
  double grad_weight = -1.0;
};

class ErrorProbe {
 public:
  // Changes the targets in `data` until `restore` puts them back. Uses the oracle once.
  ErrorProbe(const Problem& problem, ProblemData& data);
  ~ErrorProbe();
  ErrorProbe(const ErrorProbe&) = delete;
  ErrorProbe& operator=(const ErrorProbe&) = delete;

  // 0 where the head is too large for the oracle's memory.
  std::int64_t sampled_tokens() const noexcept;
  // Of outputs that were made from `data` as it is now.
  Errors errors_of(const Outputs& outputs) const;

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace flce::cli
