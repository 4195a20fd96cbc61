// SPDX-License-Identifier: Apache-2.0
// The eager variants of naive and chunked: the PyTorch code that people run, with its roundings and
// everything that it keeps in memory. Baselines for a comparison. They are planned for any problem,
// on any device alike; what they run is the loss without options, in one call.
#include "methods/methods.hpp"

namespace flce {
namespace {

bool has_plain_inputs(const Problem& p) {
  for (const Dtype extra : {p.bias_dtype, p.class_weight_dtype, p.token_weight_dtype,
                            p.temperature_dtype, p.grad_entropy_dtype, p.normalizer_dtype}) {
    if (extra != Dtype::kNone) return false;
  }
  return p.upstream == Upstream::kOne && p.shard.total == 0 && p.tokens > 0;
}

bool has_plain_options(const Problem& p) {
  Options plain;
  plain.reduction = p.options.reduction;
  plain.ignore_index = p.options.ignore_index;
  plain.sequence_length = p.options.sequence_length;
  return p.options == plain;
}

bool has_plain_wants(const Problem& p) {
  Wants plain;
  plain.grad_hidden = p.wants.grad_hidden;
  plain.grad_weight = p.wants.grad_weight;
  return p.wants == plain && !p.accumulate_grad_weight;
}

const char* planned_only(const Problem& p) {
  if (p.pass != Pass::kRun) return "it runs in one call, not as a forward and a backward one";
  if (has_plain_inputs(p) && has_plain_options(p) && has_plain_wants(p)) return nullptr;
  return "it runs the loss of hidden, weight and target with a reduction and an ignore_index, and "
         "its two gradients, of one token at least; options, outputs and inputs beyond that are "
         "planned only";
}

constexpr MethodInfo eager(Method method) {
  MethodInfo info;
  info.method = method;
  info.is_eager = true;
  info.num_gemms = [](const Problem& p) { return count_gemms(p, 1); };
  info.refusal = never_refuses;
  info.planned_only = planned_only;
  info.kept = [](const Problem&, const Tiling&) { return Kept{}; };
  info.forward = [](const Backend& backend, const Step& step) { backend.run_eager(step); };
  info.backward = [](const Backend&, const Step&) {};  // run_eager has made the gradients
  return info;
}

}  // namespace

const MethodInfo kMethodNaiveEager = eager(Method::kNaiveEager);
const MethodInfo kMethodChunkedEager = eager(Method::kChunkedEager);

}  // namespace flce
