// SPDX-License-Identifier: Apache-2.0
// Which products and kernels, in which order (docs/kernels/hopper.md).
#include "cuda/run/odds.hpp"

#include <algorithm>

#include "core/check.hpp"
#include "core/int_math.hpp"
#include "cuda/odds_sizes.hpp"
#include "cuda/run/current.hpp"
#include "cuda/run/memory.hpp"
#include "cuda/run/products.hpp"
#include "kernels/hopper/kernels.hpp"

namespace flce::cuda::odds {
namespace {

using namespace hopper;

int int_of(std::int64_t n) { return static_cast<int>(n); }

int count_sms() {
  int count = 0;
  check_cuda(cudaDeviceGetAttribute(&count, cudaDevAttrMultiProcessorCount, current_device()),
             "asking for the number of multiprocessors");
  return count;
}

// A call by this route: the memory of a chunk under the names of its kernels.
class Odds {
 public:
  explicit Odds(const Step& step)
      : memory_(step),
        sizes_(odds_sizes_of(step.problem(), tiling_of(*step.plan), step.kept)),
        num_sms_(count_sms()) {}

  const Memory& memory() const { return memory_; }
  const OddsSizes& sizes() const { return sizes_; }
  const Problem& problem() const { return memory_.problem(); }
  const Call& call() const { return memory_.call(); }
  cudaStream_t stream() const { return memory_.stream(); }
  int num_sms() const { return num_sms_; }

  Chunk chunk(Range tokens) const {
    float* const numbers = token_rows();
    const std::int64_t stride = sizes_.part_stride;
    Chunk c;
    c.first = tokens.begin;
    c.rows = int_of(tokens.size());
    c.hidden = int_of(problem().hidden);
    c.tokens = {numbers, numbers + stride, reinterpret_cast<int*>(numbers + 2 * stride),
                numbers + 3 * stride, numbers + 4 * stride};
    return c;
  }
  int* groups() const { return reinterpret_cast<int*>(token_rows()) + 5 * sizes_.part_stride; }
  // Of a backward pass that differentiates the entropy, else null.
  float2* gradient_rows() const {
    return sizes_.has_entropy_gradient ? reinterpret_cast<float2*>(memory_.at(Slot::kTokenRows))
                                       : nullptr;
  }
  std::byte* parts() const { return memory_.at(Slot::kTileStats); }
  // Rows of the vocabulary from one of the sample to the next.
  std::int64_t sample_step() const {
    constexpr std::int64_t kMostStride = (std::int64_t{1} << 31) - 1;
    return std::max<std::int64_t>(
        std::min(problem().vocab / sizes_.sample_cols, kMostStride / weight(0).row_stride), 1);
  }
  float* sample() const { return reinterpret_cast<float*>(memory_.at(Slot::kTileStats)); }
  std::byte* scaled_hidden() const { return memory_.at(Slot::kHiddenPacked); }
  std::byte* e() const { return sizes_.e_cols > 0 ? memory_.at(Slot::kKept) : nullptr; }
  Matrix e_matrix() const { return {e(), sizes_.e_cols}; }
  TargetLists lists() const {
    if (!problem().wants.grad_weight) return {};
    int* const first = groups() + sizes_.part_stride;
    return {first, first + problem().vocab};
  }
  double* bias_sums() const { return reinterpret_cast<double*>(memory_.at(Slot::kGradBiasAcc)); }
  const float* alpha() const { return &call().gradient_scale->alpha; }

  const MatrixView& hidden() const { return memory_.step().inputs->hidden; }
  Rows hidden_rows() const { return {hidden().data, hidden().row_stride, hidden().dtype}; }
  Matrix weight(std::int64_t first) const {
    const MatrixView& w = memory_.step().inputs->weight;
    return {row_of(w, first), stride_of(w)};
  }
  Matrix x(Range tokens) const { return {row_of(hidden(), tokens.begin), stride_of(hidden())}; }

 private:
  float* token_rows() const {
    auto* const numbers = reinterpret_cast<float*>(memory_.at(Slot::kTokenRows));
    return numbers + (sizes_.has_entropy_gradient ? 2 * sizes_.part_stride : 0);
  }

  Memory memory_;
  OddsSizes sizes_;
  int num_sms_;
};

Gemm gemm_of(const Odds& odds, Product product) {
  Gemm g;
  g.product = product;
  g.in = Dtype::kBF16;
  g.out = Dtype::kF32;
  g.scratch = odds.memory().scratch();
  g.scratch_bytes = odds.memory().scratch_bytes();
  return g;
}

// Logits of some rows of the vocabulary, evenly spread.
void multiply_sample(const Odds& odds, const Matrix& x, Range tokens) {
  const Matrix w = odds.weight(0);
  Gemm g = gemm_of(odds, Product::kPlain);
  g.m = tokens.size();
  g.n = odds.sizes().sample_cols;
  g.k = odds.problem().hidden;
  g.a = {x.data, x.row_stride, false};
  g.b = {w.data, odds.sample_step() * w.row_stride, true};
  g.d = odds.sample();
  g.d_row_stride = g.n;
  run_gemm(g, odds.stream());
}

// Rows [first, first + rows) of a chunk's first product.
void multiply(const Odds& odds, Exponentials e, std::int64_t first, std::int64_t rows,
              const int* run_if) {
  const auto at = [&](auto* data) { return data == nullptr ? nullptr : data + first; };
  e.x.data = static_cast<const std::byte*>(e.x.data) + first * e.x.row_stride * 2;
  if (e.e != nullptr) e.e = static_cast<std::byte*>(e.e) + first * e.e_row_stride * 2;
  e.tokens = {at(e.tokens.factor), at(e.tokens.offset), at(e.tokens.target), nullptr, nullptr};
  if (e.parts != nullptr) {
    e.parts = static_cast<std::byte*>(e.parts) + first * odds.sizes().part_bytes;
  }
  e.options.gradient = at(e.options.gradient);
  e.rows = int_of(rows);
  e.run_if = run_if;
  const auto launch = e.e != nullptr ? launch_exponentials : launch_statistics;
  check_cuda(launch(e, odds.num_sms(), odds.stream()), "the product of exponentials");
}

Exponentials exponentials_of(const Odds& odds, const Matrix& x, const Chunk& chunk, Range vocab,
                             bool keep) {
  Exponentials e;
  e.x = x;
  e.w = odds.weight(vocab.begin);
  e.e = keep ? odds.e() : nullptr;
  e.e_row_stride = odds.sizes().e_cols;
  e.cols = int_of(vocab.size());
  e.hidden = chunk.hidden;
  e.first_col = int_of(vocab.begin);
  e.tokens = chunk.tokens;
  static_assert(sizeof(TilePart) == kTilePartBytes && sizeof(OptionsPart) == kOptionsPartBytes);
  expect(odds.sizes().has_options == has_options(odds.call()));
  e.has_options = odds.sizes().has_options;
  e.options = logit_options_of(odds.call(), vocab.begin);
  return e;
}

// Offsets, exponentials (kept or not) and statistics. Rows whose offset was too far off get another
// one, and their groups a second product, which does nothing as a rule.
void make_statistics(const Odds& odds, Range tokens, bool keep) {
  const Chunk chunk = odds.chunk(tokens);
  const Matrix x = odds.x(tokens);
  multiply_sample(odds, x, tokens);
  launch_offsets(odds.call(), chunk, odds.hidden_rows(), odds.weight(0), odds.sample(),
                 int_of(odds.sizes().sample_cols), odds.sample_step(), odds.stream());
  Exponentials e = exponentials_of(odds, x, chunk, {0, odds.problem().vocab}, keep);
  e.parts = odds.parts();
  e.part_stride = odds.sizes().part_stride;
  const Pieces groups(tokens.size(), kGroupRows);
  check_cuda(cudaMemsetAsync(odds.groups(), 0, static_cast<std::size_t>(groups.count()) * 4,
                             odds.stream()),
             "clearing flags");
  multiply(odds, e, 0, tokens.size(), nullptr);
  const auto finish = [&](bool is_last) {
    launch_finish_rows(odds.call(), chunk, odds.parts(), int_of(odds.sizes().num_tiles),
                       e.part_stride, odds.groups(), is_last, odds.stream());
  };
  finish(false);
  for (std::int64_t i = 0; i < groups.count(); ++i) {
    multiply(odds, e, groups[i].begin, groups[i].size(), odds.groups() + i);
  }
  finish(true);
}

// What the gradients' products read beside the exponentials, and which tokens have which target.
void scale_rows(const Odds& odds, Range tokens, bool is_unit) {
  const TargetLists lists = odds.lists();
  if (lists.first != nullptr) {
    check_cuda(
        cudaMemsetAsync(lists.first, 0xff, static_cast<std::size_t>(odds.problem().vocab) * 2 * 4,
                        odds.stream()),
        "clearing lists of targets");
  }
  launch_scaled_rows(odds.call(), odds.chunk(tokens), odds.hidden_rows(),
                     odds.problem().wants.grad_weight ? odds.scaled_hidden() : nullptr,
                     odds.problem().hidden, lists, is_unit, odds.stream());
}

void clear_rows(const Odds& odds, Range tokens, Range vocab) {
  launch_clear_rows(odds.call(), odds.chunk(tokens), odds.e(), odds.sizes().e_cols,
                    int_of(vocab.size()), odds.stream());
}

// Into the caller's f32 grad_weight.
void add_to_floats(const Odds& odds, Range tokens, Range vocab, Turn turn) {
  const MatrixView& out = odds.memory().step().outputs->grad_weight;
  Gemm g = gemm_of(odds, Product::kGradWeightAcc);
  g.m = vocab.size();
  g.n = odds.problem().hidden;
  g.k = tokens.size();
  g.a = {odds.e(), odds.sizes().e_cols, true};
  g.b = {odds.scaled_hidden(), odds.problem().hidden, false};
  g.d = row_of(out, vocab.begin);
  g.d_row_stride = stride_of(out);
  g.accumulate = odds.problem().accumulate_grad_weight || !turn.first;
  g.device_alpha = odds.alpha();
  g.device_beta = odds.call().gradient_scale->beta;
  run_gemm(g, odds.stream());
  launch_add_target_sums(odds.chunk(tokens), odds.hidden_rows(), odds.lists(), int_of(vocab.begin),
                         int_of(vocab.size()), odds.alpha(), {g.d, g.d_row_stride, g.out},
                         odds.stream());
}

GradWeight grad_weight_of(const Odds& odds, Range tokens, Range vocab) {
  const MatrixView& out = odds.memory().step().outputs->grad_weight;
  GradWeight g;
  g.e = odds.e_matrix();
  g.xs = {odds.scaled_hidden(), odds.problem().hidden};
  g.out = row_of(out, vocab.begin);
  g.out_row_stride = stride_of(out);
  g.rows = int_of(tokens.size());
  g.cols = int_of(vocab.size());
  g.hidden = int_of(odds.problem().hidden);
  g.first_token = odds.lists().first + vocab.begin;
  g.lower = odds.memory().at(Slot::kTargetSums);
  g.alpha = odds.alpha();
  return g;
}

// bf16, the sum of several chunks and of what was there. What the last product adds to holds the
// targets' terms already.
void add_to_halves(const Odds& odds, Range tokens, Range vocab, Turn turn) {
  const GradWeight g = grad_weight_of(odds, tokens, vocab);
  const Halves sum{g.out, g.out_row_stride, odds.memory().at(Slot::kGradWeightAcc), g.hidden};
  const auto add_targets = [&] {
    launch_add_target_sums(odds.chunk(tokens), odds.hidden_rows(), odds.lists(),
                           int_of(vocab.begin), g.cols, g.alpha, sum, odds.stream());
  };
  const bool adds = odds.problem().accumulate_grad_weight;
  if (turn.first && adds) {
    check_cuda(cudaMemsetAsync(sum.lower, 0, bytes_of(g.cols, g.hidden, 2), odds.stream()),
               "clearing the lower halves of grad_weight");
  }
  if (turn.last) add_targets();
  check_cuda(
      launch_sum_grad_weight(g, sum, turn.first && !adds, turn.last, odds.num_sms(), odds.stream()),
      "the product of grad_weight");
  if (!turn.last) add_targets();
}

// bf16, all of it at once.
void write_grad_weight(const Odds& odds, Range tokens, Range vocab) {
  const GradWeight g = grad_weight_of(odds, tokens, vocab);
  check_cuda(launch_grad_weight(g, odds.num_sms(), odds.stream()), "the product of grad_weight");
  launch_finish_targets(odds.chunk(tokens), odds.hidden_rows(), odds.lists(), int_of(vocab.begin),
                        g.cols, g.alpha, {g.out, g.out_row_stride, g.lower, g.hidden},
                        odds.stream());
}

GradHidden grad_hidden_of(const Odds& odds, Range tokens, Range vocab) {
  const MatrixView& out = odds.memory().step().outputs->grad_hidden;
  GradHidden g;
  g.e = odds.e_matrix();
  g.w = odds.weight(vocab.begin);
  g.out = row_of(out, tokens.begin);
  g.out_row_stride = stride_of(out);
  g.rows = int_of(tokens.size());
  g.cols = int_of(vocab.size());
  g.hidden = int_of(odds.problem().hidden);
  g.tokens = odds.chunk(tokens).tokens;
  g.alpha = odds.alpha();
  return g;
}

// The sum over slabs.
void sum_grad_hidden(const Odds& odds, Range tokens, Range vocab, Turn turn) {
  const GradHidden g = grad_hidden_of(odds, tokens, vocab);
  std::byte* const lower = odds.memory().at(Slot::kGradHiddenAcc) + tokens.begin * g.hidden * 2;
  const Halves sum{g.out, g.out_row_stride, lower, g.hidden};
  check_cuda(launch_sum_grad_hidden(g, sum, turn.first, odds.num_sms(), odds.stream()),
             "the product of grad_hidden");
  if (!turn.last) return;
  launch_store_grad_hidden(odds.chunk(tokens), sum, odds.weight(0), g.alpha, odds.stream());
}

void sum_grad_bias(const Odds& odds, Range tokens, Range vocab, Turn turn) {
  double* const acc = odds.bias_sums() + vocab.begin;
  launch_column_sums(odds.call(), odds.chunk(tokens), odds.e_matrix(), int_of(vocab.begin),
                     int_of(vocab.size()), turn.first, acc, odds.stream());
  if (!turn.last) return;
  const VectorView& bias = odds.memory().step().outputs->grad_bias;
  RealsOut out = reals_out(bias);
  out.data = static_cast<std::byte*>(bias.data) + vocab.begin * bias.stride * size_of(bias.dtype);
  launch_store_bias(acc, vocab.size(), out, odds.problem().accumulate_grad_bias, odds.stream());
}

}  // namespace

void partial(const Step& step, Range tokens) {
  if (tokens.size() == 0) return;
  make_statistics(Odds(step), tokens, false);
  check_launch("partial");
}

void fused_chunk(const Step& step, Range tokens) {
  if (tokens.size() == 0) return;
  const Odds odds(step);
  make_statistics(odds, tokens, true);
  launch_combine(odds.call(), tokens.begin, tokens.size(), odds.stream());
  launch_coefficients(odds.call(), tokens.begin, tokens.size(), odds.stream());
  scale_rows(odds, tokens, false);
  clear_rows(odds, tokens, {0, odds.problem().vocab});
  check_launch("fused_chunk");
}

void logits(const Step& step, Range tokens, Range vocab) {
  if (tokens.size() == 0) return;
  const Odds odds(step);
  const Chunk chunk = odds.chunk(tokens);
  const Matrix x = odds.x(tokens);
  // What is made of a single chunk's tokens stays for all slabs.
  if (vocab.begin == 0 || odds.sizes().num_chunks > 1) {
    launch_known_offsets(odds.call(), chunk, odds.gradient_rows(), odds.stream());
    scale_rows(odds, tokens, true);
  }
  Exponentials e = exponentials_of(odds, x, chunk, vocab, true);
  e.options.gradient = odds.gradient_rows();
  multiply(odds, e, 0, tokens.size(), nullptr);
  clear_rows(odds, tokens, vocab);
  check_launch("logits");
}

void grad_hidden(const Step& step, Range tokens, Range vocab, Turn turn) {
  if (tokens.size() == 0) return;
  const Odds odds(step);
  if (odds.sizes().sums_grad_hidden) {
    sum_grad_hidden(odds, tokens, vocab, turn);
  } else {
    check_cuda(
        launch_grad_hidden(grad_hidden_of(odds, tokens, vocab), odds.num_sms(), odds.stream()),
        "the product of grad_hidden");
  }
  check_launch("grad_hidden");
}

void grad_weight(const Step& step, Range tokens, Range vocab, Turn turn) {
  if (tokens.size() == 0) return;
  const Odds odds(step);
  if (step.problem().wants.grad_bias) sum_grad_bias(odds, tokens, vocab, turn);
  if (!step.problem().wants.grad_weight) return check_launch("grad_weight");
  if (odds.sizes().has_f32_weight) {
    add_to_floats(odds, tokens, vocab, turn);
  } else if (odds.sizes().sums_grad_weight) {
    add_to_halves(odds, tokens, vocab, turn);
  } else {
    write_grad_weight(odds, tokens, vocab);
  }
  check_launch("grad_weight");
}

}  // namespace flce::cuda::odds
