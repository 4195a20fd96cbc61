// SPDX-License-Identifier: Apache-2.0
// Loss and both gradients of every method against plain loops in double, through the public headers
// alone. Prints a line per case; exit code 1 if one is wrong.
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <flce/flce.hpp>
#include <random>
#include <vector>

namespace {

using flce::Dtype;
using Numbers = std::vector<double>;

constexpr std::int64_t kIgnored = -100;

struct Sizes {
  std::int64_t tokens, hidden, vocab;
};

struct Results {
  double loss = 0.0;
  Numbers grad_hidden, grad_weight;
};

// A tensor in f32 or bf16, from and to double.
class Tensor {
 public:
  Tensor(Dtype dtype, std::size_t count)
      : dtype_(dtype), bytes_(count * (dtype == Dtype::kF32 ? 4 : 2)) {}

  void write(std::size_t i, double value) {
    const auto single = static_cast<float>(value);
    if (dtype_ == Dtype::kF32) {
      std::memcpy(&bytes_[4 * i], &single, 4);
    } else {
      std::uint32_t bits;
      std::memcpy(&bits, &single, 4);
      const auto half = static_cast<std::uint16_t>((bits + 0x7fffu + (bits >> 16 & 1u)) >> 16);
      std::memcpy(&bytes_[2 * i], &half, 2);
    }
  }
  double read(std::size_t i) const {
    std::uint32_t bits = 0;
    if (dtype_ == Dtype::kF32) {
      std::memcpy(&bits, &bytes_[4 * i], 4);
    } else {
      std::uint16_t half;
      std::memcpy(&half, &bytes_[2 * i], 2);
      bits = static_cast<std::uint32_t>(half) << 16;
    }
    float single;
    std::memcpy(&single, &bits, 4);
    return single;
  }
  Numbers values() const {
    Numbers all(bytes_.size() / (dtype_ == Dtype::kF32 ? 4 : 2));
    for (std::size_t i = 0; i < all.size(); ++i) all[i] = read(i);
    return all;
  }
  flce::MatrixView view(std::int64_t rows, std::int64_t cols) {
    return {bytes_.data(), rows, cols, cols, 1, dtype_};
  }

 private:
  Dtype dtype_;
  std::vector<std::byte> bytes_;
};

struct Head {
  Sizes sizes;
  Tensor hidden, weight;
  std::vector<std::int64_t> target;

  Head(const Sizes& s, Dtype dtype)
      : sizes(s),
        hidden(dtype, static_cast<std::size_t>(s.tokens * s.hidden)),
        weight(dtype, static_cast<std::size_t>(s.vocab * s.hidden)) {
    std::mt19937 engine(7);
    std::normal_distribution<double> normal(0.0, 1.0);
    const double size = 2.0 / std::sqrt(static_cast<double>(s.hidden));
    for (std::int64_t i = 0; i < s.tokens * s.hidden; ++i) hidden.write(i, normal(engine));
    for (std::int64_t i = 0; i < s.vocab * s.hidden; ++i) weight.write(i, size * normal(engine));
    for (std::int64_t i = 0; i < s.tokens; ++i) {
      target.push_back(i % 5 == 3 ? kIgnored : static_cast<std::int64_t>(engine() % s.vocab));
    }
  }
};

// The mean loss and its gradients by the definition, in double.
Results expected(const Head& head) {
  const auto [tokens, hidden, vocab] = head.sizes;
  const Numbers x = head.hidden.values(), w = head.weight.values();
  Results want{0.0, Numbers(x.size(), 0.0), Numbers(w.size(), 0.0)};
  double valid = 0.0;
  for (const std::int64_t y : head.target) valid += y == kIgnored ? 0.0 : 1.0;
  for (std::int64_t i = 0; i < tokens; ++i) {
    const std::int64_t y = head.target[i];
    if (y == kIgnored) continue;
    Numbers z(vocab, 0.0);
    double max = -HUGE_VAL, sum = 0.0;
    for (std::int64_t j = 0; j < vocab; ++j) {
      for (std::int64_t h = 0; h < hidden; ++h) z[j] += x[i * hidden + h] * w[j * hidden + h];
      max = std::fmax(max, z[j]);
    }
    for (std::int64_t j = 0; j < vocab; ++j) sum += std::exp(z[j] - max);
    want.loss += (max + std::log(sum) - z[y]) / valid;
    for (std::int64_t j = 0; j < vocab; ++j) {
      const double g = (std::exp(z[j] - max) / sum - (j == y ? 1.0 : 0.0)) / valid;
      for (std::int64_t h = 0; h < hidden; ++h) {
        want.grad_hidden[i * hidden + h] += g * w[j * hidden + h];
        want.grad_weight[j * hidden + h] += g * x[i * hidden + h];
      }
    }
  }
  return want;
}

Results computed(Head& head, Dtype dtype, flce::Method method, std::int64_t chunk) {
  const auto [tokens, hidden, vocab] = head.sizes;
  Tensor grad_hidden(dtype, static_cast<std::size_t>(tokens * hidden));
  Tensor grad_weight(dtype, static_cast<std::size_t>(vocab * hidden));
  float loss = 0.0f;
  flce::Inputs in;
  in.hidden = head.hidden.view(tokens, hidden);
  in.weight = head.weight.view(vocab, hidden);
  in.target = {head.target.data(), tokens, 1, Dtype::kI64};
  flce::Outputs out;
  out.loss = {&loss, 1, 1, Dtype::kF32};
  out.grad_hidden = grad_hidden.view(tokens, hidden);
  out.grad_weight = grad_weight.view(vocab, hidden);
  flce::DeviceCaps caps = flce::cpu_caps();
  caps.num_threads = 2;
  flce::PlanRequest request;
  request.method = method;
  request.chunk = chunk;
  const flce::Plan plan = flce::plan(flce::problem_of(in, out, flce::Options{}), caps, request);
  flce::Workspace workspace(plan.workspace_bytes);
  flce::run(plan, in, out, workspace.span());
  return {loss, grad_hidden.values(), grad_weight.values()};
}

// ||got - want|| / ||want||; a norm of 0 (one class alone) is taken as 1.
double error_of(const Numbers& got, const Numbers& want) {
  double difference = 0.0, size = 0.0;
  for (std::size_t i = 0; i < want.size(); ++i) {
    difference += (got[i] - want[i]) * (got[i] - want[i]);
    size += want[i] * want[i];
  }
  return std::sqrt(difference / (size == 0.0 ? 1.0 : size));
}

bool is_right(const Sizes& sizes, Dtype dtype, flce::Method method, std::int64_t chunk) {
  Head head(sizes, dtype);
  const Results want = expected(head);
  const Results got = computed(head, dtype, method, chunk);
  const double loss = std::fabs(got.loss - want.loss);
  const double grad_hidden = error_of(got.grad_hidden, want.grad_hidden);
  const double grad_weight = error_of(got.grad_weight, want.grad_weight);
  // A result in bf16 is off by its last rounding alone, about 1.7e-3 of its norm.
  const double most = dtype == Dtype::kF32 ? 2e-6 : 3e-3;
  const bool right = loss <= 5e-6 && grad_hidden <= most && grad_weight <= most;
  std::printf("n%lld_h%lld_v%lld %s %s chunk=%lld: loss %.1e grad_hidden %.1e grad_weight %.1e%s\n",
              static_cast<long long>(sizes.tokens), static_cast<long long>(sizes.hidden),
              static_cast<long long>(sizes.vocab), name_of(dtype), name_of(method),
              static_cast<long long>(chunk), loss, grad_hidden, grad_weight, right ? "" : " WRONG");
  return right;
}

}  // namespace

int main() {
  std::printf("libflce %s, %s\n", flce::version(), flce::cpu_isa());
  int wrong = 0;
  for (const Sizes& sizes : {Sizes{1, 1, 1}, {5, 3, 7}, {37, 65, 401}, {130, 33, 577}}) {
    for (const Dtype dtype : {Dtype::kF32, Dtype::kBF16}) {
      for (const flce::Method method :
           {flce::Method::kNaive, flce::Method::kFused, flce::Method::kRecompute}) {
        for (const std::int64_t chunk : {0, 32}) wrong += !is_right(sizes, dtype, method, chunk);
      }
    }
  }
  std::printf("%s\n", wrong == 0 ? "all right" : "some are WRONG");
  return wrong == 0 ? 0 : 1;
}
