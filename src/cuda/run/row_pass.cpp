// SPDX-License-Identifier: Apache-2.0
// The passes over a chunk's logits alone, beside a copy: how far they are from the card's
// bandwidth.
#include <random>

#include "core/int_math.hpp"
#include "cuda/run/floor.hpp"
#include "cuda/run/measure.hpp"
#include "cuda/sizes.hpp"
#include "kernels/portable/kernels.hpp"

namespace flce::cuda {
namespace {

// A chunk of random logits with all that the kernels look at.
class Chunk {
 public:
  Chunk(std::int64_t tokens, std::int64_t vocab, Dtype dtype)
      : bytes_(bytes_of(tokens, round_up(vocab, kLineBytes / 4), 4)),
        logits_(bytes_),
        targets_(bytes_of(tokens, 1, 8)),
        states_(bytes_of(tokens, 1, sizeof(TokenState))),
        gradients_(bytes_of(tokens, 1, sizeof(TokenGradient))),
        sums_(kTotalsBytes + kGradientScaleBytes) {
    std::mt19937_64 random(1);
    std::vector<std::int64_t> targets(static_cast<std::size_t>(tokens));
    for (std::int64_t& target : targets) {
      target = static_cast<std::int64_t>(random() % static_cast<std::uint64_t>(vocab));
    }
    check_cuda(cudaMemcpy(targets_.data(), targets.data(), targets.size() * sizeof(std::int64_t),
                          cudaMemcpyHostToDevice),
               "copying targets");
    call.tokens = tokens;
    call.vocab = call.vocab_total = vocab;
    call.dtype = dtype;
    call.target = {targets_.data(), 1, Dtype::kI64};
    call.states = static_cast<TokenState*>(states_.data());
    call.gradients = static_cast<TokenGradient*>(gradients_.data());
    call.totals = static_cast<Totals*>(sums_.data());
    call.gradient_scale =
        reinterpret_cast<GradientScale*>(static_cast<std::byte*>(sums_.data()) + kTotalsBytes);
    call.scales_gradient = dtype == Dtype::kF16;
    logits = {logits_.data(), round_up(vocab, kLineBytes / 4), 0, tokens, 0, vocab};
    gradient = {logits_.data(), logits.row_stride * 4 / size_of(dtype)};
  }

  // Before each pass, which leaves gradients in their place.
  void fill(std::uint64_t seed) const {
    launch_random_rows({logits.data, logits.row_stride, Dtype::kF32}, logits.rows, logits.cols,
                       1.0F, seed, nullptr);
    launch_scan_targets(call, nullptr);
    if (call.scales_gradient) launch_gradient_scale(call, nullptr);
    launch_token_factors(call, 0, call.tokens, nullptr);
  }
  std::uint64_t bytes() const { return bytes_; }

  Call call;
  LogitBlock logits;
  GradientBlock gradient;

 private:
  std::uint64_t bytes_;
  Block logits_, targets_, states_, gradients_, sums_;
};

}  // namespace

RowPass measure_row_pass(std::int64_t tokens, std::int64_t vocab, Dtype dtype, int rounds) {
  const Chunk chunk(tokens, vocab, dtype);
  const Stopwatch watch;
  std::vector<double> fused;
  std::vector<double> apart;
  std::vector<double> copies;
  for (int round = -1; round < rounds; ++round) {
    const auto keep = [&](std::vector<double>& all, double seconds) {
      if (round >= 0) all.push_back(seconds);
    };
    chunk.fill(static_cast<std::uint64_t>(2 * round + 3));
    keep(fused, watch.seconds([&] { launch_fused_rows(chunk.call, chunk.logits, nullptr); }));
    chunk.fill(static_cast<std::uint64_t>(2 * round + 4));
    const double statistics =
        watch.seconds([&] { launch_row_stats(chunk.call, chunk.logits, true, nullptr); });
    launch_coefficients(chunk.call, 0, tokens, nullptr);
    keep(apart, statistics + watch.seconds([&] {
      launch_row_gradient(chunk.call, chunk.logits, chunk.gradient, nullptr);
    }));
    auto* const half = static_cast<std::byte*>(chunk.logits.data) + chunk.bytes() / 2;
    keep(copies, watch.seconds([&] {
      check_cuda(cudaMemcpyAsync(chunk.logits.data, half, chunk.bytes() / 2,
                                 cudaMemcpyDeviceToDevice, nullptr),
                 "copying");
    }));
  }
  check_launch("the passes over logits");
  RowPass pass;
  pass.bytes = bytes_of(tokens, vocab, 4 + size_of(dtype));
  pass.fused_seconds = median_of(fused);
  pass.apart_seconds = median_of(apart);
  pass.copy_bytes_per_second = static_cast<double>(chunk.bytes()) / median_of(copies);
  return pass;
}

}  // namespace flce::cuda
