// SPDX-License-Identifier: Apache-2.0
#include "cuda/run/memory.hpp"

#include <algorithm>

namespace flce::cuda {
namespace {

IntegersOut integers_out(const VectorView& view) {
  return {static_cast<std::int64_t*>(view.data), view.stride};
}

void read_options(const Problem& p, Call& call) {
  const Options& o = p.options;
  call.reduction = o.reduction;
  call.ignore_index = o.ignore_index;
  call.label_smoothing = o.label_smoothing;
  call.z_loss = o.z_loss;
  call.softcap = o.softcap;
  call.scale = o.scale;
  call.temperature = o.temperature;
  call.inverse_temperature = 1.0 / o.temperature;
  call.has_normalizer = o.has_normalizer || o.normalizer != 0.0;
  call.normalizer = o.normalizer;
  call.shift = o.shift;
  call.sequence_length = o.sequence_length;
}

void read_views(const Inputs& in, const Outputs& out, Call& call) {
  call.target = reals(in.target);
  call.bias_in = reals(in.bias);
  call.class_weight_in = reals(in.class_weight);
  call.token_weight = reals(in.token_weight);
  call.temperatures = reals(in.temperature);
  call.normalizer_in = reals(in.normalizer);
  call.grad_output = reals(in.grad_output);
  call.grad_entropy = reals(in.grad_entropy);
  call.loss = reals_out(out.loss);
  call.lse = reals_out(out.lse);
  call.logprob = reals_out(out.logprob);
  call.entropy = reals_out(out.entropy);
  call.z_part = reals_out(out.z_loss);
  call.topk_logprob = {out.topk_logprob.data, out.topk_logprob.row_stride, out.topk_logprob.dtype};
  call.topk_index = {static_cast<std::int64_t*>(out.topk_index.data), out.topk_index.row_stride};
  call.argmax = integers_out(out.argmax);
  call.num_correct = integers_out(out.num_correct);
  call.num_valid = integers_out(out.num_valid);
}

}  // namespace

Call call_of(const Step& step) {
  const Problem& p = step.problem();
  Call call;
  call.tokens = p.tokens;
  call.vocab = p.vocab;
  call.vocab_total = p.vocab_total();
  call.shard_begin = p.shard.begin;
  call.dtype = p.dtype;
  call.is_f64 = p.dtype == Dtype::kF64;
  read_options(p, call);
  read_views(*step.inputs, *step.outputs, call);
  call.upstream = p.upstream;
  call.unit_upstream = step.unit_upstream;
  call.wants_entropy = p.wants.entropy || p.grad_entropy_dtype != Dtype::kNone;
  call.wants_best = p.wants.argmax || p.wants.num_correct;
  call.scales_gradient =
      (p.dtype == Dtype::kF16 || step.plan->route == Route::kHopper) && p.wants.any_gradient();
  call.topk = p.wants.topk;
  return call;
}

Memory::Memory(const Step& step)
    : step_(step),
      sizes_(sizes_of(step.problem(), tiling_of(*step.plan), step.kept)),
      call_(call_of(step)) {
  const Problem& p = step.problem();
  call_.states = reinterpret_cast<TokenState*>(at(Slot::kRowState));
  call_.totals = reinterpret_cast<Totals*>(at(Slot::kReduction));
  if (p.wants.any_gradient()) {
    std::byte* const coefficients = at(Slot::kCoefficients);
    call_.gradient_scale = reinterpret_cast<GradientScale*>(coefficients);
    call_.gradients = reinterpret_cast<TokenGradient*>(coefficients + kGradientScaleBytes);
  }
  if (p.has_bias()) call_.bias = at(Slot::kBias);
  if (p.has_class_weight()) call_.class_weight = at(Slot::kClassWeight);
  if (call_.topk > 0) call_.candidates = reinterpret_cast<TopkCandidate*>(at(Slot::kTopk));
}

std::byte* Memory::at(Slot slot) const {
  const SlotPlace& place = step_.plan->slots[static_cast<std::size_t>(slot)];
  note_use(place);
  return (place.saved ? step_.saved : step_.workspace) + place.offset;
}

void Memory::note_use(const SlotPlace& place) const {
  if (step_.report == nullptr) return;
  std::uint64_t& mark =
      place.saved ? step_.report->saved_high_water : step_.report->workspace_high_water;
  mark = std::max(mark, place.offset + place.bytes);
}

LogitBlock Memory::logits(Range tokens, Range vocab, std::int64_t row) const {
  return {at(Slot::kKept) + row * sizes_.kept_cols * sizes_.acc_size,
          sizes_.kept_cols,
          tokens.begin,
          tokens.size(),
          vocab.begin,
          vocab.size()};
}

GradientBlock Memory::gradient(std::int64_t row) const {
  if (sizes_.has_own_gradient) {
    const std::int64_t row_bytes =
        round_up(problem().vocab, kLineBytes / sizes_.in_size) * sizes_.in_size;
    // A piece of its own begins at its first row, wherever its logits are kept.
    const bool is_whole = step_.plan->method == Method::kNaive;
    return {at(Slot::kGradientPacked) + (is_whole ? row * row_bytes : 0),
            row_bytes / sizes_.in_size};
  }
  const std::int64_t row_bytes = sizes_.kept_cols * sizes_.acc_size;
  return {at(Slot::kKept) + row * row_bytes, row_bytes / sizes_.in_size};
}

}  // namespace flce::cuda
