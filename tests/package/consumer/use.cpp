// SPDX-License-Identifier: Apache-2.0
// Case 14 of the list of known values through the C++ door, and an error caught by its type.
#include <cstdio>
#include <flce/flce.hpp>

int main() {
  float hidden[4] = {1, 1, 1, 1}, weight[2] = {2, 0}, loss = 0;
  std::int64_t target[4] = {0, 1, 1, 1};
  flce::Inputs in;
  in.hidden = {hidden, 4, 1, 1, 1, flce::Dtype::kF32};
  in.weight = {weight, 2, 1, 1, 1, flce::Dtype::kF32};
  in.target = {target, 4, 1, flce::Dtype::kI64};
  flce::Outputs out;
  out.loss = {&loss, 1, 1, flce::Dtype::kF32};

  const auto plan = flce::plan(flce::problem_of(in, out, {}), flce::cpu_caps());
  flce::Workspace workspace(plan.workspace_bytes);
  flce::run(plan, in, out, workspace.span());
  std::printf("flce %s, loss %.5f\n", flce::version(), static_cast<double>(loss));

  try {
    in.target.size = 3;
    flce::problem_of(in, out, {});
  } catch (const flce::Error& error) {
    return error.code() == flce::ErrorCode::kInvalidArgument ? 0 : 2;
  }
  return 1;
}
