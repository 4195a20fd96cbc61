// SPDX-License-Identifier: Apache-2.0
// problem_of: the problem that a set of views poses.
#include "api/validate.hpp"
#include "core/check.hpp"
#include "flce/flce.hpp"

namespace flce {
namespace {

void read_inputs(const Inputs& in, Problem& p) {
  require(static_cast<bool>(in.hidden), "hidden is missing; it must be (N, H)");
  require(static_cast<bool>(in.weight), "weight is missing; it must be (V, H)");
  require(static_cast<bool>(in.target), "target is missing; it must be (N)");
  require(in.hidden.rows >= 0 && in.hidden.cols >= 1, "hidden has shape ({}, {}); it needs H >= 1",
          in.hidden.rows, in.hidden.cols);
  require(in.weight.rows >= 1 && in.weight.cols >= 1,
          "weight has shape ({}, {}); it needs V >= 1 rows of H >= 1 (a sharded parameter must be "
          "gathered first)",
          in.weight.rows, in.weight.cols);
  require(in.hidden.cols == in.weight.cols,
          "hidden has shape ({}, {}) and weight ({}, {}); their second sizes (H) must be equal",
          in.hidden.rows, in.hidden.cols, in.weight.rows, in.weight.cols);
  require(in.target.size == in.hidden.rows,
          "target has {} elements and hidden {} rows; there must be one target per row",
          in.target.size, in.hidden.rows);
  require(in.weight.dtype == in.hidden.dtype,
          "weight has dtype {} and hidden {}; they must be equal (convert one of them)",
          name_of(in.weight.dtype), name_of(in.hidden.dtype));
  p.tokens = in.hidden.rows;
  p.hidden = in.hidden.cols;
  p.vocab = in.weight.rows;
  p.dtype = in.hidden.dtype;
  p.target_dtype = in.target.dtype;
  p.bias_dtype = in.bias.dtype;
  p.class_weight_dtype = in.class_weight.dtype;
  p.token_weight_dtype = in.token_weight.dtype;
  p.temperature_dtype = in.temperature.dtype;
  p.grad_entropy_dtype = in.grad_entropy.dtype;
  p.normalizer_dtype = in.normalizer.dtype;
  p.grad_output_dtype = in.grad_output.dtype;
}

void read_upstream(const Inputs& in, const Options& options, Problem& p) {
  p.upstream = Upstream::kOne;
  if (!in.grad_output) return;
  const std::int64_t size = in.grad_output.size;
  const bool per_token = options.reduction == Reduction::kNone && size == p.tokens;
  require(per_token || size == 1, "grad_output has {} elements; it must have 1{}", size,
          options.reduction == Reduction::kNone
              ? fmt::format(" or N = {}", p.tokens)
              : fmt::format(", since reduction {} makes one loss", name_of(options.reduction)));
  p.upstream = per_token ? Upstream::kPerToken : Upstream::kScalar;
}

void read_outputs(const Outputs& out, Problem& p) {
  Wants& w = p.wants;
  w.grad_hidden = static_cast<bool>(out.grad_hidden);
  w.grad_weight = static_cast<bool>(out.grad_weight);
  w.grad_bias = static_cast<bool>(out.grad_bias);
  w.lse = static_cast<bool>(out.lse);
  w.logprob = static_cast<bool>(out.logprob);
  w.entropy = static_cast<bool>(out.entropy);
  w.z_loss = static_cast<bool>(out.z_loss);
  w.argmax = static_cast<bool>(out.argmax);
  w.num_correct = static_cast<bool>(out.num_correct);
  w.num_valid = static_cast<bool>(out.num_valid);
  require(static_cast<bool>(out.topk_logprob) == static_cast<bool>(out.topk_index),
          "{} is missing; topk_logprob and topk_index come together",
          out.topk_logprob ? "topk_index" : "topk_logprob");
  w.topk = out.topk_logprob.cols;
  if (out.grad_weight.dtype != p.dtype) p.grad_weight_dtype = out.grad_weight.dtype;
  if (out.grad_bias.dtype != p.bias_dtype) p.grad_bias_dtype = out.grad_bias.dtype;
}

}  // namespace

Problem problem_of(const Inputs& inputs, const Outputs& outputs, const Options& options,
                   bool accumulate_grad_weight, bool accumulate_grad_bias, Pass pass) {
  Problem problem;
  problem.options = options;
  problem.pass = pass;
  problem.accumulate_grad_weight = accumulate_grad_weight;
  problem.accumulate_grad_bias = accumulate_grad_bias;
  read_inputs(inputs, problem);
  read_upstream(inputs, options, problem);
  read_outputs(outputs, problem);
  validate_problem(problem);
  validate_shapes(problem, inputs, outputs);
  return problem;
}

}  // namespace flce
