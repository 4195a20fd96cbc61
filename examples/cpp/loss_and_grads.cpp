// SPDX-License-Identifier: Apache-2.0
// Loss and gradients of four tokens over two classes, with numbers that can be checked by hand:
// each token's logits are (2, 0), so its loss is log(1 + e^-2) = 0.1269 or that plus 2.
#include <cstdint>
#include <cstdio>
#include <flce/flce.hpp>
#include <vector>

int main() {
  const std::int64_t tokens = 4, hidden_size = 1, vocab = 2;
  std::vector<float> hidden(tokens * hidden_size, 1.0f);
  std::vector<float> weight = {2.0f, 0.0f};
  std::vector<std::int64_t> target = {0, 1, 1, 1};
  float loss = 0.0f;
  std::vector<float> grad_hidden(hidden.size()), grad_weight(weight.size());

  // Views: where the memory is, its shape and strides (in elements) and its type.
  using flce::Dtype;
  flce::Inputs in;
  in.hidden = {hidden.data(), tokens, hidden_size, hidden_size, 1, Dtype::kF32};
  in.weight = {weight.data(), vocab, hidden_size, hidden_size, 1, Dtype::kF32};
  in.target = {target.data(), tokens, 1, Dtype::kI64};
  flce::Outputs out;
  out.loss = {&loss, 1, 1, Dtype::kF32};
  out.grad_hidden = {grad_hidden.data(), tokens, hidden_size, hidden_size, 1, Dtype::kF32};
  out.grad_weight = {grad_weight.data(), vocab, hidden_size, hidden_size, 1, Dtype::kF32};

  flce::Options options;
  options.reduction = flce::Reduction::kMean;

  try {
    const flce::Problem problem = flce::problem_of(in, out, options);
    const flce::Plan plan = flce::plan(problem, flce::cpu_caps());
    flce::Workspace workspace(plan.workspace_bytes);  // keep it for the next step
    flce::run(plan, in, out, workspace.span());
    std::printf("method %s, chunk %lld\n", name_of(plan.method),
                static_cast<long long>(plan.chunk));
  } catch (const flce::Error& error) {
    std::fprintf(stderr, "%s\n", error.what());
    return 1;
  }

  std::printf("loss %.6f\n", static_cast<double>(loss));
  std::printf("grad_hidden");
  for (const float value : grad_hidden) std::printf(" %.6f", static_cast<double>(value));
  std::printf("\ngrad_weight");
  for (const float value : grad_weight) std::printf(" %.6f", static_cast<double>(value));
  std::printf("\n");
}
