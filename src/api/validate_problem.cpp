// SPDX-License-Identifier: Apache-2.0
// The problem itself: sizes, element types, options and what goes together.
#include <cmath>

#include "api/validate.hpp"
#include "core/check.hpp"
#include "core/dtypes.hpp"
#include "core/int_math.hpp"

namespace flce {
namespace {

bool is_real(Dtype dtype) { return dtype >= Dtype::kF64 && dtype <= Dtype::kF16; }

void check_sizes(const Problem& p) {
  require(p.tokens >= 0, "tokens is {}; it must be 0 or more", p.tokens);
  require(p.hidden >= 1, "hidden size is {}; hidden (N, H) and weight (V, H) need H >= 1",
          p.hidden);
  const bool is_shard = p.shard.total > 0;
  require(p.vocab >= (is_shard ? 0 : 1),
          "vocab is {}; weight (V, H) needs V >= 1 (a sharded parameter must be gathered first)",
          p.vocab);
  require(p.vocab_total() <= std::int64_t{1} << 40 && p.hidden <= std::int64_t{1} << 40 &&
              p.tokens <= std::int64_t{1} << 40,
          "sizes n{}_h{}_v{}: each must be at most 2^40", p.tokens, p.hidden, p.vocab);
  if (!is_shard) return;
  require(p.shard.begin >= 0 && p.shard.begin + p.vocab <= p.shard.total,
          "the vocabulary shard [{}, {}) lies outside the head of {} rows", p.shard.begin,
          p.shard.begin + p.vocab, p.shard.total);
  require(p.wants.topk == 0, ErrorCode::kUnsupported,
          "top-k of a head split over ranks is not supported; ask for topk on the whole head");
}

void check_companion(const Problem& p, const char* name, Dtype dtype) {
  if (dtype == Dtype::kNone) return;
  const bool fits = dtype == p.dtype || (dtype == Dtype::kF32 && p.dtype != Dtype::kF64);
  require(fits, "{} has dtype {}; with {} hidden states it must be {}{}", name, name_of(dtype),
          name_of(p.dtype), name_of(p.dtype),
          p.dtype == Dtype::kF64 || p.dtype == Dtype::kF32 ? "" : " or f32");
}

void check_dtypes(const Problem& p) {
  require(is_real(p.dtype), "hidden has dtype {}; f64, f32, bf16 and f16 work", name_of(p.dtype));
  require(p.target_dtype == Dtype::kI64 || p.target_dtype == Dtype::kI32,
          "target has dtype {}; class indices must be i64 or i32", name_of(p.target_dtype));
  check_companion(p, "bias", p.bias_dtype);
  check_companion(p, "class_weight", p.class_weight_dtype);
  check_companion(p, "token_weight", p.token_weight_dtype);
  check_companion(p, "temperature", p.temperature_dtype);
  check_companion(p, "grad_entropy", p.grad_entropy_dtype);
  check_companion(p, "grad_output", p.grad_output_dtype);
  check_companion(p, "grad_weight", p.grad_weight_dtype);
  check_companion(p, "grad_bias", p.grad_bias_dtype);
  const Dtype n = p.normalizer_dtype;
  require(n != Dtype::kBF16 && n != Dtype::kF16,
          "normalizer has dtype {}; f64, f32, i64 and i32 work (16 bits cannot count tokens)",
          name_of(n));
}

void check_number(const char* name, double value, bool is_fine, const char* rule) {
  require(is_fine && std::isfinite(value), "{} is {}; it must be {}", name, value, rule);
}

// A number that became 0 or infinite in the type that logits are made in would be another one.
void check_held(const Problem& p, const char* name, double value) {
  const RealRange range = accumulation_range(p.dtype);
  require(
      value == 0.0 || range.holds(value),
      "{} is {}; the loss of {} hidden states is made in {}, so it must be in that type's range, "
      "{:.3g} to {:.3g}",
      name, value, name_of(p.dtype), name_of(accumulation_dtype(p.dtype)), range.least,
      range.largest);
}

void check_options(const Problem& p) {
  const Options& o = p.options;
  require(o.reduction >= Reduction::kNone && o.reduction <= Reduction::kMean,
          "reduction number {} is unknown; none, sum and mean exist",
          static_cast<int>(o.reduction));
  check_number("label_smoothing", o.label_smoothing,
               o.label_smoothing >= 0.0 && o.label_smoothing <= 1.0, "between 0 and 1");
  check_number("z_loss", o.z_loss, o.z_loss >= 0.0, "0 (off) or positive");
  check_number("softcap", o.softcap, o.softcap >= 0.0, "0 (off) or positive");
  check_number("scale", o.scale, true, "a finite number");
  check_number("temperature", o.temperature, o.temperature > 0.0, "positive");
  check_held(p, "z_loss", o.z_loss);
  check_held(p, "softcap", o.softcap);
  check_held(p, "scale", o.scale);
  check_held(p, "temperature", o.temperature);
  require(p.temperature_dtype == Dtype::kNone || o.temperature == 1.0,
          "temperature is given as one number ({}) and per token; give one of them", o.temperature);
  require(o.shift >= 0, "shift is {}; it must be 0 (aligned targets) or more", o.shift);
  require(o.sequence_length >= 0,
          "sequence_length is {}; it must be 0 (all tokens are one "
          "sequence) or more",
          o.sequence_length);
  require(o.sequence_length == 0 || p.tokens % o.sequence_length == 0,
          "sequence_length {} does not divide the {} tokens", o.sequence_length, p.tokens);
  require(o.sequence_length == 0 || o.shift > 0,
          "sequence_length {} says where a shift ends, and shift is 0; give a shift of 1 or more, "
          "or leave sequence_length out",
          o.sequence_length);
}

void check_normalizer(const Problem& p) {
  const Options& o = p.options;
  const bool in_memory = p.normalizer_dtype != Dtype::kNone;
  if (!o.has_normalizer && !in_memory) return;
  require(o.reduction == Reduction::kSum,
          "a normalizer is given with reduction {}; it divides the sum, so use reduction sum",
          name_of(o.reduction));
  require(!(o.has_normalizer && in_memory),
          "normalizer is given as a number ({}) and in memory; give one of them", o.normalizer);
  if (o.has_normalizer) {
    check_number("normalizer", o.normalizer, o.normalizer >= 0.0,
                 "a count of tokens: 0 or positive");
  }
}

void check_wants(const Problem& p) {
  const Wants& w = p.wants;
  require(!w.grad_bias || p.has_bias(), "grad_bias is wanted, but there is no bias");
  require(!p.accumulate_grad_weight || w.grad_weight,
          "accumulate_grad_weight is set, but grad_weight is not wanted");
  require(!p.accumulate_grad_bias || w.grad_bias,
          "accumulate_grad_bias is set, but grad_bias is not wanted");
  require(w.topk >= 0 && w.topk <= p.vocab_total(), "topk is {}; it must be from 0 to V = {}",
          w.topk, p.vocab_total());
  require(w.topk <= 1024, "topk is {}; at most 1024 are kept per token", w.topk);
}

void check_upstream(const Problem& p) {
  const bool has_output = p.grad_output_dtype != Dtype::kNone;
  require(has_output == (p.upstream != Upstream::kOne),
          "grad_output's dtype is {} and its kind is {}; give both or neither",
          name_of(p.grad_output_dtype), static_cast<int>(p.upstream));
  require(p.upstream != Upstream::kPerToken || p.options.reduction == Reduction::kNone,
          "a per-token grad_output goes with reduction none, not {}; a reduced loss has a scalar "
          "one",
          name_of(p.options.reduction));
}

}  // namespace

void validate_problem(const Problem& p) {
  require(p.pass == Pass::kRun || p.pass == Pass::kForwardBackward,
          "pass number {} is unknown; run (0) and forward_backward (1) exist",
          static_cast<int>(p.pass));
  check_dtypes(p);
  check_sizes(p);
  check_options(p);
  check_normalizer(p);
  check_wants(p);
  check_upstream(p);
}

void validate_request(const PlanRequest& request, const DeviceCaps& caps, Dtype dtype) {
  require(request.method >= Method::kAuto && request.method <= Method::kChunkedEager,
          "method number {} is unknown", static_cast<int>(request.method));
  require(request.chunk >= 0, "chunk is {}; it must be a number of tokens, 1 or more (0: chosen)",
          request.chunk);
  require(request.policy == ChunkPolicy::kMeasured || request.policy == ChunkPolicy::kLiger,
          "chunk policy number {} is unknown; measured (0) and liger (1) exist",
          static_cast<int>(request.policy));
  require(request.route >= Route::kAuto && request.route <= Route::kHopper,
          "route number {} is unknown; auto (0), portable (1) and hopper (2) exist",
          static_cast<int>(request.route));
  const bool is_cuda = caps.kind == DeviceKind::kCuda;
  require(is_cuda || request.route == Route::kAuto, ErrorCode::kUnsupported,
          "route {} is for CUDA devices; device {} has no routes, leave it out",
          name_of(request.route), name_of(caps.kind));
  require(!request.allow_tf32 || (is_cuda && dtype == Dtype::kF32), ErrorCode::kUnsupported,
          "tf32 is for f32 problems on CUDA devices; with {} on device {} leave it out",
          name_of(dtype), name_of(caps.kind));
  require(caps.num_threads >= 1 && caps.num_threads <= 1024,
          "num_threads is {}; it must be from 1 to 1024", caps.num_threads);
}

}  // namespace flce
