// SPDX-License-Identifier: Apache-2.0
// prepare: bias and class weights as plain vectors. scan_targets: looks at every target once,
// before anything is written.
#include "cpu/memory.hpp"
#include "cpu/verbs.hpp"

namespace flce::cpu {
namespace {

// Widens bias and class weights once, so that the tiles read plain vectors.
template <typename Acc>
void widen_vectors(const Memory<Acc>& memory) {
  const Problem& p = memory.problem();
  const Inputs& in = memory.inputs();
  if (p.has_bias()) {
    Acc* bias = memory.template at<Acc>(Slot::kBias);
    for (std::int64_t j = 0; j < p.vocab; ++j) bias[j] = static_cast<Acc>(load_real(in.bias, j));
  }
  if (p.has_class_weight()) {
    Acc* weights = memory.class_weights();
    double* tiles = memory.tile_weights();
    for (std::int64_t t = 0; t < memory.sizes().num_tiles; ++t) tiles[t] = 0.0;
    for (std::int64_t j = 0; j < p.vocab; ++j) {
      weights[j] = static_cast<Acc>(load_real(in.class_weight, p.shard.begin + j));
      tiles[j / kTileVocab] += weights[j];
    }
  }
}

template <typename Acc>
void scan(const Memory<Acc>& memory) {
  const Problem& p = memory.problem();
  const Inputs& in = memory.inputs();
  const RealRange range = accumulation_range(p.dtype);
  Totals sums;
  for (std::int64_t i = 0; i < p.tokens; ++i) {
    const auto [y, is_ignored] = target_of(p, in, i);
    if (is_ignored) continue;
    require(y >= 0 && y < p.vocab_total(), ErrorCode::kTargetOutOfRange,
            "target[{}] is {}, outside the vocabulary [0, {}) and not ignore_index {}; mark tokens "
            "without a target with ignore_index",
            i + p.options.shift, y, p.vocab_total(), p.options.ignore_index);
    const double temperature = in.temperature ? load_real(in.temperature, i) : 1.0;
    require(
        temperature > 0.0 && range.holds(temperature),
        "temperature[{}] is {}; it must be positive, from {:.3g} to {:.3g}, for every token with "
        "a target",
        i, temperature, range.least, range.largest);
    sums.num_valid += 1;
    sums.target_weight_sum += p.has_class_weight() ? load_real(in.class_weight, y) : 1.0;
  }
  sums.class_weight_sum = static_cast<double>(p.vocab_total());
  if (p.has_class_weight()) {
    sums.class_weight_sum = 0.0;
    for (std::int64_t j = 0; j < p.vocab_total(); ++j) {
      sums.class_weight_sum += load_real(in.class_weight, j);
    }
  }
  memory.totals() = sums;
}

}  // namespace

void prepare(const Step& step) {
  visit_accumulation(step.problem().dtype,
                     [&]<typename Acc>(Type<Acc>) { widen_vectors(Memory<Acc>(step)); });
}

void scan_targets(const Step& step) {
  visit_accumulation(step.problem().dtype,
                     [&]<typename Acc>(Type<Acc>) { scan(Memory<Acc>(step)); });
}

}  // namespace flce::cpu
