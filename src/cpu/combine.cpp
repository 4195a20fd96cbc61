// SPDX-License-Identifier: Apache-2.0
// combine, coefficients and reduce_loss: what is done once a token. All in double; a token's share
// of the work is tiny beside its products.
#include <cmath>
#include <cstring>
#include <limits>

#include "cpu/memory.hpp"
#include "cpu/offset.hpp"
#include "cpu/threads.hpp"
#include "cpu/verbs.hpp"

namespace flce::cpu {
namespace {

constexpr std::int64_t kTokensPerTask = 64;

LossParams loss_params(const Problem& p, const Totals& sums) {
  return {p.options.label_smoothing, p.options.z_loss, static_cast<double>(p.vocab_total()),
          sums.class_weight_sum};
}

double class_weight_of(const Problem& p, const Inputs& in, std::int64_t row) {
  return p.has_class_weight() ? load_real(in.class_weight, row) : 1.0;
}

double token_weight_of(const Inputs& in, std::int64_t token) {
  return in.token_weight ? load_real(in.token_weight, token) : 1.0;
}

double temperature_of(const Problem& p, const Inputs& in, std::int64_t token) {
  return in.temperature ? load_real(in.temperature, token) : p.options.temperature;
}

// What the sum of the losses is divided by.
double divisor_of(const Problem& p, const Inputs& in, const Totals& sums) {
  if (p.options.reduction == Reduction::kMean) {
    return mean_divisor(sums.target_weight_sum);
  }
  if (in.normalizer) return load_real(in.normalizer, 0);
  return p.options.has_normalizer ? p.options.normalizer : 1.0;
}

// x86 makes 0/0 a NaN with a sign, which prints as "-nan".
double reduced(double sum, double divisor) {
  const double value = sum / divisor;
  return std::isnan(value) ? std::numeric_limits<double>::quiet_NaN() : value;
}

void store_if(const VectorView& view, std::int64_t i, double value) {
  if (view) store_real(view, i, value);
}

void store_index(const VectorView& view, std::int64_t i, std::int64_t value) {
  if (view) static_cast<std::int64_t*>(view.data)[i * view.stride] = value;
}

// The top-k list holds logits u; an ignored token's becomes zeros.
void finish_topk(const Outputs& out, std::int64_t k, std::int64_t token, bool is_ignored,
                 double lse_parts[2]) {
  for (std::int64_t n = 0; n < k; ++n) {
    if (out.topk_logprob) {
      const std::int64_t at = token * out.topk_logprob.row_stride + n;
      visit_accumulation(out.topk_logprob.dtype, [&]<typename Acc>(Type<Acc>) {
        Acc& value = static_cast<Acc*>(out.topk_logprob.data)[at];
        value = is_ignored ? Acc(0) : static_cast<Acc>((value - lse_parts[0]) - lse_parts[1]);
      });
    }
    if (out.topk_index && is_ignored) {
      static_cast<std::int64_t*>(out.topk_index.data)[token * out.topk_index.row_stride + n] = 0;
    }
  }
}

void finish_token(const Problem& p, const Inputs& in, const Outputs& out, const LossParams& params,
                  std::int64_t token, RowRecord& record) {
  const auto [target, is_ignored] = target_of(p, in, token);
  RowLoss row;
  double entropy = 0.0;
  double lse_parts[2] = {0.0, 0.0};
  if (!is_ignored) {
    const double weight = token_weight_of(in, token);
    row = loss_of_row(record.stats, params, class_weight_of(p, in, target));
    record.loss = weight * row.loss;
    record.z_part = weight * row.z_part;
    if (p.wants.entropy) entropy = entropy_of_row(record.stats);
    lse_parts[0] = record.stats.max;
    lse_parts[1] = row.lse - record.stats.max;
  }
  store_if(out.lse, token, row.lse);
  store_if(out.logprob, token, is_ignored ? 0.0 : row.logprob);
  store_if(out.entropy, token, entropy);
  store_index(out.argmax, token,
              is_ignored ? 0 : std::max<std::int64_t>(record.stats.best_index, 0));
  finish_topk(out, p.wants.topk, token, is_ignored, lse_parts);
  if (p.options.reduction == Reduction::kNone) {
    store_if(out.loss, token, record.loss);
    store_if(out.z_loss, token, record.z_part);
  }
}

template <typename Acc>
void combine_tokens(const Memory<Acc>& memory, Range tokens) {
  const Problem& p = memory.problem();
  const LossParams params = loss_params(p, memory.totals());
  parallel_for(
      ceil_div(tokens.size(), kTokensPerTask), memory.num_lanes(), [&](std::int64_t task, int) {
        const std::int64_t first = tokens.begin + task * kTokensPerTask;
        const std::int64_t end = std::min(first + kTokensPerTask, tokens.end);
        for (std::int64_t i = first; i < end; ++i) {
          finish_token(p, memory.inputs(), memory.outputs(), params, i, *memory.records(i));
        }
      });
  // In the order of the tokens, whatever the chunk and the threads.
  Totals& sums = memory.totals();
  for (std::int64_t i = tokens.begin; i < tokens.end; ++i) {
    const auto [target, is_ignored] = target_of(p, memory.inputs(), i);
    if (is_ignored) continue;
    const RowRecord& record = *memory.records(i);
    sums.loss_sum += record.loss;
    sums.z_sum += record.z_part;
    sums.num_correct += record.stats.best_index == target;
  }
}

// The upstream gradient of one token's loss, without its token weight.
double upstream_of(const Step& step, std::int64_t token) {
  const Problem& p = step.problem();
  if (step.unit_upstream || p.upstream == Upstream::kOne) return 1.0;
  return load_real(step.inputs->grad_output, p.upstream == Upstream::kPerToken ? token : 0);
}

template <typename Acc>
RowCoefficients<Acc> coefficients_of(const Step& step, const LossParams& params, double divisor,
                                     std::int64_t token, const RowStats& stats) {
  const Problem& p = step.problem();
  const Inputs& in = *step.inputs;
  RowCoefficients<Acc> row{};
  row.target = -1;
  const auto [target, is_ignored] = target_of(p, in, token);
  if (is_ignored) return row;
  const double temperature = temperature_of(p, in, token);
  const double upstream = upstream_of(step, token) * token_weight_of(in, token) / divisor;
  const double grad_entropy = in.grad_entropy ? load_real(in.grad_entropy, token) : 0.0;
  const RowGradient g = gradient_of_row(stats, params, class_weight_of(p, in, target),
                                        upstream / temperature, grad_entropy / temperature);
  row.max = static_cast<Acc>(stats.max);  // exact: it is some logit of that type
  row.a = static_cast<Acc>(g.a);
  row.q = static_cast<Acc>(g.q);
  row.h = static_cast<Acc>(g.h);
  row.k = static_cast<Acc>(g.k);
  row.t = static_cast<Acc>(g.t);
  // From the offset that the exponentials of the row have in common.
  row.scale = static_cast<Acc>(g.a * std::exp(value_of(offset_of(row.max)) - stats.max));
  row.inverse_temperature = static_cast<Acc>(1.0 / temperature);
  // A gradient that is zero throughout is zero by selection, never by multiplying with what the
  // row's logits hold. NaN coefficients are not zero and stay.
  row.active = !(row.a == 0 && row.q == 0 && row.h == 0 && row.t == 0);
  const std::int64_t local = target - p.shard.begin;
  if (local >= 0 && local < p.vocab) row.target = local;
  return row;
}

}  // namespace

std::int64_t stats_bytes() { return sizeof(RowStats); }

void export_stats(const Step& step, Range tokens, std::byte* to) {
  visit_accumulation(step.problem().dtype, [&]<typename Acc>(Type<Acc>) {
    const Memory<Acc> memory(step);
    for (std::int64_t i = 0; i < tokens.size(); ++i) {
      std::memcpy(to + i * stats_bytes(), &memory.records(tokens.begin + i)->stats,
                  sizeof(RowStats));
    }
  });
}

void merge_stats(const Step& step, Range tokens, const std::byte* gathered, int num_shards) {
  visit_accumulation(step.problem().dtype, [&]<typename Acc>(Type<Acc>) {
    const Memory<Acc> memory(step);
    for (std::int64_t i = 0; i < tokens.size(); ++i) {
      RowStats sum;
      for (std::int64_t shard = 0; shard < num_shards; ++shard) {
        RowStats one;
        std::memcpy(&one, gathered + (shard * tokens.size() + i) * stats_bytes(), sizeof one);
        merge(sum, one);
      }
      memory.records(tokens.begin + i)->stats = sum;
    }
  });
}

void combine(const Step& step, Range tokens) {
  visit_accumulation(step.problem().dtype,
                     [&]<typename Acc>(Type<Acc>) { combine_tokens(Memory<Acc>(step), tokens); });
}

void coefficients(const Step& step, Range tokens) {
  visit_accumulation(step.problem().dtype, [&]<typename Acc>(Type<Acc>) {
    const Memory<Acc> memory(step);
    const Totals& sums = memory.totals();
    const LossParams params = loss_params(step.problem(), sums);
    const double divisor = divisor_of(step.problem(), *step.inputs, sums);
    const bool is_unscaled = packs_unscaled<Acc>(step);
    for (std::int64_t i = tokens.begin; i < tokens.end; ++i) {
      const RowStats& stats = memory.records(i)->stats;
      *memory.coefficients(i) = coefficients_of<Acc>(step, params, divisor, i, stats);
      const RowCoefficients<Acc>& row = *memory.coefficients(i);
      const double factor = is_unscaled ? row.scale * step.problem().options.scale : 1.0;
      *memory.hidden_scale(i) = row.active ? static_cast<float>(factor) : 0.0f;
    }
  });
}

void reduce_loss(const Step& step) {
  const Problem& p = step.problem();
  const Outputs& out = *step.outputs;
  visit_accumulation(p.dtype, [&]<typename Acc>(Type<Acc>) {
    const Totals& sums = Memory<Acc>(step).totals();
    if (p.options.reduction != Reduction::kNone) {
      double divisor = divisor_of(p, *step.inputs, sums);
      // Without a valid token a mean is NaN, as in PyTorch, and any other sum is 0.
      if (sums.num_valid == 0 && p.options.reduction == Reduction::kSum) divisor = 1.0;
      store_if(out.loss, 0, reduced(sums.loss_sum, divisor));
      store_if(out.z_loss, 0, reduced(sums.z_sum, divisor));
    }
    store_index(out.num_correct, 0, sums.num_correct);
    store_index(out.num_valid, 0, sums.num_valid);
  });
}

}  // namespace flce::cpu
