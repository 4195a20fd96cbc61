// SPDX-License-Identifier: Apache-2.0
// One token of the oracle: its logits, its softmax and the gradient of its loss, in extended
// precision. Used by evaluate() alone.
#pragma once

#include <cstdint>
#include <vector>

#include "oracle/oracle.hpp"

namespace oracle {

using Real = long double;

// The softmax of one row. `others` and `rest` are sums of exp(u - top) that leave out the target
// and the largest entry: what keeps log(p) of a confident token exact.
struct Row {
  std::vector<Real> u;
  std::vector<Real> cap_slope;  // d u / d z times the temperature
  std::vector<Real> odds;       // exp(u - top)
  Real temperature = 1;
  Real top = 0;
  Real sum = 0;
  Real others = 0;
  Real rest = 0;
  Real target_odds = 0;
  Real lse = 0;
  std::int64_t argmax = 0;
  double logit_magnitude = 0.0;
};

struct RowLoss {
  Real total = 0;
  Real z_part = 0;
  Real magnitude = 0;
};

Row make_row(const Input& input, std::int64_t token, std::int64_t target);

// -log p of the target.
Real negative_log_likelihood(const Row& row, std::int64_t target);
Real entropy_of(const Row& row);
RowLoss loss_of(const Input& input, const Row& row, std::int64_t token, std::int64_t target);

// The gradient with respect to z of `upstream * loss + entropy_upstream * entropy`, and the sums of
// magnitudes that it is made of (`capped` with the slope of the soft cap, `uncapped` without).
struct RowGradient {
  std::vector<double> value;
  std::vector<double> capped;
  std::vector<double> uncapped;
};
struct RowUpstream {
  Real loss = 1;
  Real entropy = 0;
};
RowGradient gradient_of(const Input& input, const Row& row, std::int64_t token, std::int64_t target,
                        const RowUpstream& upstream);

}  // namespace oracle
