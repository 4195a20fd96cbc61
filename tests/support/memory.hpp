// SPDX-License-Identifier: Apache-2.0
// The memory of one call: a case's inputs written into poisoned storage, its outputs poisoned or
// holding what is accumulated into, and the views on both.
#pragma once

#include <string>
#include <vector>

#include "support/storage.hpp"
#include "support/test_case.hpp"

namespace flce_test {

// What a call produced, as doubles (exact conversions) and integers; empty where not wanted.
struct Results {
  std::vector<double> loss, lse, logprob, entropy, z_loss, topk_logprob;
  std::vector<double> grad_hidden, grad_weight, grad_bias;
  std::vector<std::int64_t> argmax, num_correct, num_valid, topk_index;
};

class Memory {
 public:
  explicit Memory(const Case& c);

  flce::Inputs inputs() const;
  flce::Outputs outputs() const;
  // The problem that these views pose.
  flce::Problem problem(const Case& c, flce::Pass pass = flce::Pass::kRun) const;
  Results results() const;
  // Names everything that a call may not touch and has: inputs, gaps, canaries. Empty if all is
  // well.
  std::string damage() const;
  // Names every output that differs from what it was before the call.
  std::string written() const;

  Storage hidden, weight, target, bias, class_weight, token_weight, temperature, normalizer;
  Storage grad_output, grad_entropy;
  Storage loss, lse, logprob, entropy, z_loss, argmax, num_correct, num_valid;
  Storage topk_logprob, topk_index, grad_hidden, grad_weight, grad_bias;

 private:
  void make_operands(const Case& c);
  void make_vectors(const Case& c);
  void make_token_outputs(const Case& c);
  void make_gradients(const Case& c);

  template <typename Visit>
  static void each_input(auto& memory, Visit visit);
  template <typename Visit>
  static void each_output(auto& memory, Visit visit);
};

}  // namespace flce_test
