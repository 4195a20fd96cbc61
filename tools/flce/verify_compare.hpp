// SPDX-License-Identifier: Apache-2.0
// Results of the library against the oracle: one error and one limit for each of them. Used by
// `flce verify`; verify_compare.cpp explains the limits.
#pragma once

#include <string>
#include <vector>

#include "oracle/oracle.hpp"
#include "run_outputs.hpp"
#include "verify_data.hpp"

namespace flce::cli {

struct Check {
  std::string name;  // "loss", "grad_hidden", "topk_index", ...
  double error = 0.0;
  double limit = 0.0;

  bool passes() const noexcept { return error <= limit; }  // false for NaN
};

// What is right for this problem and data, computed once for all methods.
class Truth {
 public:
  Truth(const Problem& problem, const ProblemData& data);

  std::vector<Check> compare(const OutputTensors& outputs) const;
  // Relative error of a gradient of the unfused computation in the same element type.
  double unfused_error(const std::string& gradient) const;
  const oracle::Result& result() const noexcept { return result_; }

 private:
  struct Gradient {
    const char* name;
    std::vector<double> want;
    double conditioning = 0.0;  // norms of the sums of magnitudes, with and without the cap's slope
    double uncapped = 0.0;
    double unfused = 0.0;
    Dtype dtype = Dtype::kNone;
  };
  Check compare_gradient(const Gradient& gradient, const std::vector<double>& got) const;
  Check compare_argmax(const std::vector<double>& got) const;
  Check compare_topk_index(const std::vector<double>& got) const;
  Check compare_num_correct(double got) const;
  bool is_ambiguous(std::int64_t token) const;

  Problem problem_;
  oracle::Input input_;
  oracle::Result result_;
  std::vector<std::int64_t> targets_;
  std::vector<Gradient> gradients_;
  double epsilon_ = 0.0;  // of the accumulation type
  double delta_ = 0.0;    // bound of the error of a logit
};

// The oracle's input for a problem and its data.
oracle::Input oracle_input(const Problem& problem, const ProblemData& data);

}  // namespace flce::cli
