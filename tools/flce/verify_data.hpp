// SPDX-License-Identifier: Apache-2.0
// Random data for a problem: inputs in the problem's element types, made from a seed. Used by
// verify, bench and the demo of train.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "flce/flce.hpp"
#include "io/tensor.hpp"

namespace flce::cli {

enum class DataKind {
  kRandom,      // logits of standard deviation about 1
  kPeaked,      // about 8: a few classes hold all of the probability
  kConfident,   // hidden along its target's weight row: p of the target near 1
  kCommonMean,  // all weight rows share a large mean row
};
// Throws Error{kInvalidArgument} that lists the known names.
DataKind data_kind_of(std::string_view name);
const char* name_of(DataKind kind) noexcept;
inline constexpr const char* kDataKindNames = "random, peaked, confident, common-mean";

struct DataSettings {
  std::uint64_t seed = 1;
  DataKind kind = DataKind::kRandom;
  double ignored_share = 0.0;   // of the targets
  bool poison_ignored = false;  // NaN in the hidden rows of tokens without a target
};

// The tensors that `inputs()` looks at. Starting values of accumulated gradients are kept apart, as
// outputs belong to each run.
class ProblemData {
 public:
  ProblemData(const Problem& problem, const DataSettings& settings);

  const Inputs& inputs() const noexcept { return inputs_; }
  // Null if the problem has no such input: "bias", ..., "grad_weight_start", "grad_bias_start".
  const io::Tensor* find(const std::string& name) const;
  // Memory of all inputs; starting values are none.
  std::uint64_t input_bytes() const;
  // Values of such an input, empty if there is none.
  std::vector<double> values(const std::string& name) const;
  std::vector<std::int64_t> targets() const;
  void set_targets(const std::vector<double>& targets);  // one for each token
  // The class that token i is to predict, or -1 where it has none.
  std::vector<std::int64_t> resolved_targets() const;

 private:
  io::Tensor& add(const std::string& name, Dtype dtype, io::Shape shape);
  void make_matrices(const DataSettings& settings);
  void make_targets(const DataSettings& settings);
  void aim_at_targets(const DataSettings& settings);
  void aim_row(std::int64_t token, std::int64_t target, double lead);
  void make_vectors(const DataSettings& settings);
  void make_starts(const DataSettings& settings);
  void poison();

  Problem problem_;
  std::map<std::string, io::Tensor> tensors_;
  Inputs inputs_;
};

}  // namespace flce::cli
