// SPDX-License-Identifier: Apache-2.0
// The eager variants: logits, their wide copy, log-probabilities, the gradient and its rounded
// copy, each a tensor of its own, as the PyTorch code that people run has them. A baseline to
// compare with: the same products as the other methods, and plain passes over the tensors between
// them. It must not be clever. backend/eager.hpp says where the tensors stand.
//
// Each chunk is a problem of its own for the products: their verbs see it as a chunk of `fused`
// whose kept exponentials are the gradient itself (coefficient 1, maximum 0, no target).
#include "backend/eager.hpp"

#include <algorithm>

#include "cpu/memory.hpp"
#include "cpu/threads.hpp"
#include "cpu/vec.hpp"
#include "cpu/verbs.hpp"

namespace flce::cpu {
namespace {

// The vectors of the passes: those that every processor has.
struct Plain {
  static constexpr int kBytes = 16;
};

Problem chunk_problem(Problem problem, std::int64_t tokens) {
  problem.tokens = tokens;
  problem.options = Options{};
  problem.options.reduction = Reduction::kNone;
  return problem;
}

// The memory of the products, as a chunk of `fused` books it but for the kept values.
Ledger book_products(const Problem& problem, const DeviceCaps& caps, std::int64_t tokens) {
  Ledger ledger(Pass::kRun);
  const Tiling tiling{Method::kFused, tokens, problem.vocab};
  const Kept kept{Keep::kExponentials, 0, problem.vocab, false};
  book_cpu(chunk_problem(problem, tokens), caps, tiling, kept, ledger);
  return ledger;
}

// A step of one chunk, with its memory at `scratch` bytes and its kept values at `kept` bytes of
// the whole step's workspace.
struct ChunkStep {
  Plan plan;
  Inputs inputs;
  Outputs outputs;
  Step step;

  ChunkStep(const Step& whole, Range tokens, Keep what, std::uint64_t scratch, std::uint64_t kept)
      : plan(*whole.plan), inputs(*whole.inputs), outputs(*whole.outputs), step(whole) {
    plan.problem = chunk_problem(whole.problem(), tokens.size());
    plan.method = Method::kFused;
    plan.chunk = tokens.size();
    plan.slots = book_products(whole.problem(), plan.caps, tokens.size()).layout().places;
    for (SlotPlace& place : plan.slots) place.offset += scratch;
    plan.slots[static_cast<int>(Slot::kKept)] = {kept, 0, false};
    move_to(inputs.hidden, tokens);
    move_to(outputs.grad_hidden, tokens);
    inputs.target.data = static_cast<std::byte*>(inputs.target.data) +
                         tokens.begin * inputs.target.stride * size_of(inputs.target.dtype);
    inputs.target.size = tokens.size();
    step.plan = &plan;
    step.inputs = &inputs;
    step.outputs = &outputs;
    step.kept = {what, tokens.size(), plan.problem.vocab, false};
  }
  ChunkStep(const ChunkStep&) = delete;
  ChunkStep& operator=(const ChunkStep&) = delete;

 private:
  static void move_to(MatrixView& view, Range tokens) {
    if (!view) return;
    view.data =
        static_cast<std::byte*>(view.data) + tokens.begin * view.row_stride * size_of(view.dtype);
    view.rows = tokens.size();
  }
};

// Log-sum-exp of a row; the sum is made in short pieces.
template <typename Acc>
double log_sum_exp(const Acc* row, std::int64_t count) {
  using O = Ops<Plain, Acc>;
  constexpr std::int64_t kPieceLength = 512;
  Acc max = row[0];
  for (std::int64_t j = 1; j < count; ++j) max = row[j] > max || max != max ? row[j] : max;
  double sum = 0.0;
  for (std::int64_t first = 0; first < count; first += kPieceLength) {
    const std::int64_t end = std::min(first + kPieceLength, count);
    typename O::Vec piece{};
    std::int64_t j = first;
    for (; j + O::kLanes <= end; j += O::kLanes) piece += O::exp(O::load(row + j) - max);
    sum += O::sum(piece);
    for (; j < end; ++j) sum += O::exp(O::splat(row[j] - max))[0];
  }
  return max + std::log(sum);
}

template <typename T>
class Eager {
  using Acc = AccOf<T>;
  using O = Ops<Plain, Acc>;
  static constexpr bool kIsNarrow = sizeof(T) < sizeof(Acc);

 public:
  explicit Eager(const Step& step)
      : step_(step),
        p_(step.problem()),
        chunks_(p_.tokens, step.plan->chunk),
        scratch_(eager_scratch_bytes(p_, step.plan->caps, chunks_[0].size())),
        room_(eager_room(p_, chunks_[0].size(), scratch_)),
        // Looking the slots up notes that they are used.
        kept_(Memory<Acc>(step).template at<std::byte>(Slot::kKept)),
        rest_(Memory<Acc>(step).template at<std::byte>(Slot::kGradientPacked)) {}

  void run() {
    count_targets();
    for (std::int64_t i = 0; i < chunks_.count(); ++i) {
      project(chunks_[i]);
      log_softmax(chunks_[i]);
      add_losses(chunks_[i]);
    }
    store_loss();
    if (!p_.wants.any_gradient()) return;
    for (std::int64_t i = 0; i < chunks_.count(); ++i) {
      // A single chunk's log-probabilities are still there.
      if (chunks_.count() > 1) log_softmax(chunks_[i]);
      make_gradient(chunks_[i]);
      multiply(chunks_[i], i > 0);
    }
  }

 private:
  template <typename U>
  U* tensor(std::uint64_t offset) const {
    return reinterpret_cast<U*>(rest_ + offset);
  }
  T* logits(Range tokens) const {
    return p_.wants.any_gradient() ? reinterpret_cast<T*>(kept_) + tokens.begin * p_.vocab
                                   : tensor<T>(room_.logits);
  }
  std::uint64_t workspace_offset(const void* at) const {
    return static_cast<std::uint64_t>(static_cast<const std::byte*>(at) - step_.workspace);
  }
  template <typename Body>
  void for_each_token(Range tokens, Body body) const {
    parallel_for(tokens.size(), step_.plan->caps.num_threads,
                 [&](std::int64_t i, int) { body(i, i * p_.vocab); });
  }

  void count_targets() {
    const ChunkStep all(step_, {0, chunks_[0].size()}, Keep::kNothing, workspace_offset(rest_), 0);
    Step scan = all.step;
    Plan plan = all.plan;
    plan.problem = p_;  // all tokens, with their ignore_index
    scan.plan = &plan;
    scan.inputs = step_.inputs;
    scan_targets(scan);
    totals_ = Memory<Acc>(scan).totals();
  }

  // The product, rounded to the inputs' type; wide ones go where they stay.
  void project(Range tokens) const {
    Acc* product = tensor<Acc>(room_.copy);
    if constexpr (!kIsNarrow) product = logits(tokens);
    const ChunkStep chunk(step_, tokens, Keep::kLogits,
                          workspace_offset(rest_ + room_.logits_products),
                          workspace_offset(product));
    cpu::logits(chunk.step, {0, tokens.size()}, {0, p_.vocab});
    if constexpr (kIsNarrow) {
      T* narrow = logits(tokens);
      for_each_token(tokens, [&](std::int64_t, std::int64_t at) {
        for (std::int64_t j = at; j < at + p_.vocab; ++j) narrow[j] = round_to<T>(product[j]);
      });
    }
  }

  void log_softmax(Range tokens) const {
    const T* narrow = logits(tokens);
    Acc* copy = tensor<Acc>(room_.copy);
    Acc* logprobs = tensor<Acc>(room_.logprobs);
    for_each_token(tokens, [&](std::int64_t, std::int64_t at) {
      const Acc* row = nullptr;
      if constexpr (kIsNarrow) {
        for (std::int64_t j = at; j < at + p_.vocab; ++j) copy[j] = widen(narrow[j]);
        row = copy + at;
      } else {
        row = narrow + at;
      }
      const Acc lse = static_cast<Acc>(log_sum_exp(row, p_.vocab));
      for (std::int64_t j = 0; j < p_.vocab; ++j) logprobs[at + j] = row[j] - lse;
    });
  }

  // In the order of the tokens.
  void add_losses(Range tokens) {
    const Acc* logprobs = tensor<Acc>(room_.logprobs);
    for (std::int64_t i = 0; i < tokens.size(); ++i) {
      const std::int64_t token = tokens.begin + i;
      const Target target = target_of(p_, *step_.inputs, token);
      const double loss = target.is_ignored ? 0.0 : -double{logprobs[i * p_.vocab + target.row]};
      totals_.loss_sum += loss;
      if (p_.options.reduction == Reduction::kNone && step_.outputs->loss) {
        store_real(step_.outputs->loss, token, loss);
      }
    }
  }

  double divisor() const {
    return p_.options.reduction == Reduction::kMean ? static_cast<double>(totals_.num_valid) : 1.0;
  }
  void store_loss() const {
    if (p_.options.reduction == Reduction::kNone || !step_.outputs->loss) return;
    const double loss = totals_.num_valid == 0 && p_.options.reduction == Reduction::kMean
                            ? std::numeric_limits<double>::quiet_NaN()
                            : totals_.loss_sum / divisor();
    store_real(step_.outputs->loss, 0, loss);
  }

  // softmax - onehot, times the upstream, wide and rounded.
  void make_gradient(Range tokens) const {
    const Acc* logprobs = tensor<Acc>(room_.logprobs);
    Acc* gradient = tensor<Acc>(room_.gradient);
    T* rounded = tensor<T>(room_.rounded);
    const Acc upstream = static_cast<Acc>(1.0 / divisor());
    for_each_token(tokens, [&](std::int64_t i, std::int64_t at) {
      const Target target = target_of(p_, *step_.inputs, tokens.begin + i);
      const Acc factor = target.is_ignored ? Acc(0) : upstream;
      std::int64_t j = 0;
      for (; j + O::kLanes <= p_.vocab; j += O::kLanes) {
        O::store(gradient + at + j, O::exp(O::load(logprobs + at + j)) * factor);
      }
      for (; j < p_.vocab; ++j) {
        gradient[at + j] = O::exp(O::splat(logprobs[at + j]))[0] * factor;
      }
      if (!target.is_ignored) gradient[at + target.row] -= factor;
      if constexpr (kIsNarrow) {
        for (j = at; j < at + p_.vocab; ++j) rounded[j] = round_to<T>(gradient[j]);
        // The products take f16 values from f32 memory.
        if constexpr (!std::is_same_v<T, BF16>) {
          for (j = at; j < at + p_.vocab; ++j) gradient[j] = widen(rounded[j]);
        }
      }
    });
  }

  // grad_hidden of the chunk, and its part of grad_weight, which is rounded with every chunk.
  void multiply(Range tokens, bool add) const {
    const std::uint64_t gradient = std::is_same_v<T, BF16> ? room_.rounded : room_.gradient;
    ChunkStep chunk(step_, tokens, Keep::kExponentials,
                    workspace_offset(rest_ + room_.grads_products),
                    workspace_offset(rest_ + gradient));
    chunk.plan.problem.accumulate_grad_weight = add;
    const Memory<Acc> memory(chunk.step);
    std::fill_n(memory.tile_max(), tokens.size() * memory.sizes().num_tiles, Acc(0));
    for (std::int64_t i = 0; i < tokens.size(); ++i) {
      RowCoefficients<Acc>& row = *memory.coefficients(i);
      row = {};
      row.a = row.scale = row.inverse_temperature = Acc(1);
      row.target = -1;
      row.active = !target_of(p_, *step_.inputs, tokens.begin + i).is_ignored;
      *memory.hidden_scale(i) = row.active ? 1.0f : 0.0f;
    }
    const Range all{0, tokens.size()};
    const Range vocab{0, p_.vocab};
    if (p_.wants.grad_hidden) grad_hidden(chunk.step, all, vocab, 0, Turn{});
    if (p_.wants.grad_weight) grad_weight(chunk.step, all, vocab, 0, Turn{});
  }

  const Step& step_;
  const Problem& p_;
  Pieces chunks_;
  std::uint64_t scratch_;
  EagerRoom room_;
  std::byte* kept_;
  std::byte* rest_;
  Totals totals_;
};

}  // namespace

std::uint64_t eager_scratch_bytes(const Problem& problem, const DeviceCaps& caps,
                                  std::int64_t chunk) {
  return book_products(problem, caps, chunk).layout().workspace_bytes;
}

void run_eager(const Step& step) {
  visit_dtype(step.problem().dtype, [&]<typename T>(Type<T>) { Eager<T>(step).run(); });
}

}  // namespace flce::cpu
