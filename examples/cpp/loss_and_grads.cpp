// SPDX-License-Identifier: Apache-2.0
// Loss and gradients of four tokens over two classes, with numbers that can be checked by hand:
// each token's logits are (2, 0), so its loss is log(1 + e^-2) = 0.1269 or that plus 2.
// README.md shows it from the first #include on.
#include <flce/flce.hpp>
#include <iostream>
#include <vector>

int main() {
  const std::int64_t N = 4, H = 1, V = 2;  // tokens, hidden size, vocabulary
  std::vector<float> hidden(N * H, 1.0f), weight = {2.0f, 0.0f};
  std::vector<std::int64_t> target = {0, 1, 1, 1};
  std::vector<float> grad_hidden(N * H), grad_weight(V * H);
  float loss = 0.0f;

  using flce::Dtype;  // views: data, rows, columns, row stride, inner stride, dtype
  flce::Inputs in;
  in.hidden = {hidden.data(), N, H, H, 1, Dtype::kF32};
  in.weight = {weight.data(), V, H, H, 1, Dtype::kF32};
  in.target = {target.data(), N, 1, Dtype::kI64};
  flce::Outputs out;
  out.loss = {&loss, 1, 1, Dtype::kF32};
  out.grad_hidden = {grad_hidden.data(), N, H, H, 1, Dtype::kF32};
  out.grad_weight = {grad_weight.data(), V, H, H, 1, Dtype::kF32};

  const flce::Problem problem = flce::problem_of(in, out, flce::Options{});
  const flce::Plan plan = flce::plan(problem, flce::cpu_caps());
  flce::Workspace workspace(plan.workspace_bytes);  // for every step of this plan
  flce::run(plan, in, out, workspace.span());
  std::cout << "loss " << loss << ", by " << name_of(plan.method) << '\n';
  std::cout << "grad_weight " << grad_weight[0] << ' ' << grad_weight[1] << '\n';
}
