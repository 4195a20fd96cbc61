// SPDX-License-Identifier: Apache-2.0
// Random cases over the whole of the interface. Each group of options is drawn by a function of its
// own, so that adding an option is adding a line.
#include <algorithm>

#include "support/storage.hpp"
#include "support/test_case.hpp"

namespace flce_test {
namespace {

using flce::Dtype;

Sizes draw_sizes(Rng& rng) {
  return {rng.pick<std::int64_t>({1, 2, 3, 5, 13, 31, 48, 67, 101}),
          rng.pick<std::int64_t>({1, 2, 3, 8, 17, 32, 65, 70}),
          rng.pick<std::int64_t>({1, 2, 3, 17, 64, 127, 129, 191, 200, 257, 400})};
}

void draw_types(Case& c, Rng& rng) {
  c.target_dtype = rng.pick({Dtype::kI64, Dtype::kI32});
  if (c.dtype == Dtype::kF64) return;
  if (rng.chance(0.5)) c.vector_dtype = Dtype::kF32;
  if (rng.chance(0.4)) c.grad_weight_dtype = Dtype::kF32;
  if (rng.chance(0.4)) c.grad_bias_dtype = Dtype::kF32;
}

void draw_layout(Case& c, Rng& rng) {
  if (rng.chance(0.4)) return;
  Layout& layout = c.layout;
  layout.hidden_gap = rng.pick<std::int64_t>({0, 1, 7, 16});
  layout.weight_gap = rng.pick<std::int64_t>({0, 1, 7, 16});
  layout.grad_gap = rng.pick<std::int64_t>({0, 1, 7, 16});
  layout.output_gap = rng.pick<std::int64_t>({0, 0, 1, 3});
  layout.offset = rng.pick<std::int64_t>({0, 1, 3, 8});
  layout.target_stride = rng.pick<std::int64_t>({1, 2});
  layout.bias_stride = rng.pick<std::int64_t>({1, 2, 5});
  layout.class_weight_stride = rng.pick<std::int64_t>({1, 2, 5});
  layout.token_weight_stride = rng.pick<std::int64_t>({1, 2, 5});
  layout.upstream_stride = rng.pick<std::int64_t>({1, 2, 5});
}

void draw_reduction(Case& c, Rng& rng) {
  c.in.reduction =
      rng.pick({oracle::Reduction::kNone, oracle::Reduction::kSum, oracle::Reduction::kMean});
  if (c.in.reduction == oracle::Reduction::kSum && rng.chance(0.5)) {
    c.in.has_normalizer = true;
    c.in.normalizer = static_cast<double>(1 + rng.index(40));
    c.normalizer_dtype =
        rng.pick({Dtype::kNone, Dtype::kF64, Dtype::kF32, Dtype::kI64, Dtype::kI32});
  }
  if (rng.chance(0.3)) {
    c.in.grad_output = random_normals(c.vectors(), 1, 2.0, rng);
  } else if (c.in.reduction == oracle::Reduction::kNone && rng.chance(0.5)) {
    c.in.grad_output = random_normals(c.vectors(), c.in.tokens, 1.0, rng);
  }
}

void draw_targets(Case& c, Rng& rng) {
  c.in.ignore_index = rng.pick<std::int64_t>({-100, -100, -1, 0, c.in.vocab / 2});
  if (rng.chance(0.25)) {
    c.in.shift = 1 + rng.index(2);
    std::int64_t length = 1 + rng.index(c.in.tokens);
    while (c.in.tokens % length != 0) --length;
    c.in.sequence_length = rng.chance(0.5) ? length : 0;
  }
  ignore_some(c, rng.pick({0.0, 0.3, 0.3, 0.9}), rng);
}

void draw_formula(Case& c, Rng& rng) {
  if (rng.chance(0.3)) c.in.smoothing = rng.pick({0.1, 0.5, 1.0});
  if (rng.chance(0.3)) c.in.z_loss = rng.pick({1e-4, 0.05});
  if (rng.chance(0.3)) c.in.softcap = rng.pick({2.0, 30.0});
  if (rng.chance(0.3)) c.in.scale = rng.pick({0.125, 2.0, -1.5});
  if (rng.chance(0.2)) c.in.temperature = rng.pick({0.5, 1.7});
  if (rng.chance(0.5)) c.in.bias = random_normals(c.vectors(), c.in.vocab, 1.0, rng);
  if (rng.chance(0.3)) c.in.class_weight = random_weights(c, c.in.vocab, rng);
  if (rng.chance(0.3)) c.in.token_weight = random_weights(c, c.in.tokens, rng);
  if (c.in.temperature == 1.0 && rng.chance(0.2)) {
    c.in.temperature_per_token = random_weights(c, c.in.tokens, rng);
  }
}

void draw_wants(Case& c, Rng& rng) {
  flce::Wants& wants = c.wants;
  wants.grad_hidden = rng.chance(0.8);
  wants.grad_weight = rng.chance(0.8);
  wants.grad_bias = !c.in.bias.empty() && rng.chance(0.8);
  for (bool* want : {&wants.lse, &wants.logprob, &wants.entropy, &wants.z_loss, &wants.argmax,
                     &wants.num_correct, &wants.num_valid}) {
    *want = rng.chance(0.4);
  }
  if (rng.chance(0.3)) {
    wants.topk = 1 + rng.index(std::min<std::int64_t>(c.in.vocab, 7));
    c.in.topk = wants.topk;
  }
  if (rng.chance(0.2)) {
    wants.entropy = true;
    c.in.grad_entropy = random_normals(c.vectors(), c.in.tokens, 0.5, rng);
  }
}

void draw_accumulation(Case& c, Rng& rng) {
  if (c.wants.grad_weight && rng.chance(0.4)) {
    c.grad_weight_start = random_normals(c.grad_weight_type(), c.in.vocab * c.in.hidden, 0.5, rng);
  }
  if (c.wants.grad_bias && rng.chance(0.4)) {
    c.grad_bias_start = random_normals(c.grad_bias_type(), c.in.vocab, 0.5, rng);
  }
}

}  // namespace

Case random_case(Dtype dtype, std::uint64_t seed) {
  Rng rng(seed ^ 0xF1CEULL);
  const Sizes sizes = draw_sizes(rng);
  const Data data =
      rng.pick({Data::kRandom, Data::kRandom, Data::kPeaked, Data::kConfident, Data::kCommonMean});
  Case c = basic_case(sizes, dtype, seed, data);
  draw_types(c, rng);
  draw_layout(c, rng);
  draw_reduction(c, rng);
  draw_targets(c, rng);
  draw_formula(c, rng);
  draw_wants(c, rng);
  draw_accumulation(c, rng);
  if (rng.chance(0.4)) poison_ignored(c, rng);
  return c;
}

}  // namespace flce_test
