// SPDX-License-Identifier: Apache-2.0
// What will the last line of a training step cost? A plan needs sizes only: no data, no device.
// Here: the head of Llama-3-8B with 65,536 tokens in bf16, on a card that need not be at hand.
#include <cstdio>
#include <flce/flce.hpp>

namespace {

double gigabytes(std::uint64_t bytes) { return static_cast<double>(bytes) / 1e9; }

void print_methods(const flce::Plan& plan) {
  for (const flce::MethodReport& method : plan.methods) {
    if (method.refused()) {
      std::printf("%-14s %s\n", name_of(method.method), method.refusal.data());
    } else {
      std::printf("%-14s extra %7.2f GB, peak %7.2f GB, chunk %lld\n", name_of(method.method),
                  gigabytes(method.extra_bytes), gigabytes(method.peak_bytes),
                  static_cast<long long>(method.chunk));
    }
  }
}

}  // namespace

int main() {
  flce::Problem problem;
  problem.tokens = 65536;
  problem.hidden = 4096;
  problem.vocab = 128256;
  problem.dtype = flce::Dtype::kBF16;
  const double logits = static_cast<double>(problem.tokens) * static_cast<double>(problem.vocab);
  std::printf("logits in f32: %.1f GB, in bf16: %.1f GB\n", logits * 4 / 1e9, logits * 2 / 1e9);

  try {
    flce::DeviceCaps caps = flce::cpu_caps();
    caps.memory_bytes = flce::parse_bytes("80GiB");
    print_methods(flce::plan_report(problem, caps));

    // A budget is a hard limit of the extra bytes; the plan finds the chunk that keeps it.
    flce::PlanRequest request;
    request.budget_bytes = flce::parse_bytes("1100MiB");
    const flce::Plan plan = flce::plan(problem, caps, request);
    std::printf("within 1100 MiB: %s, chunk %lld, extra %.2f GB\n", name_of(plan.method),
                static_cast<long long>(plan.chunk), gigabytes(plan.extra_bytes));
  } catch (const flce::Error& error) {
    std::fprintf(stderr, "%s\n", error.what());
    return 1;
  }
}
