// SPDX-License-Identifier: Apache-2.0
// The two-phase core over a head that is split by vocabulary rows: 1, 2 and 3 uneven shards (one
// empty) driven through partial, combine and grads give the unsharded result.
#include <gtest/gtest.h>

#include <barrier>
#include <cstring>
#include <random>
#include <thread>
#include <vector>

#include "api/registry.hpp"
#include "flce/flce.hpp"
#include "parallel/shards.hpp"

namespace flce {
namespace {

constexpr std::int64_t kTokens = 37, kHidden = 20, kVocab = 431;

// Ranks are threads; buffers are exchanged under a barrier.
class ThreadGroup {
 public:
  explicit ThreadGroup(int ranks) : barrier(ranks), pointers(ranks), num_ranks(ranks) {}
  std::barrier<> barrier;
  std::vector<const void*> pointers;
  int num_ranks;
};

class ThreadRank final : public Communicator {
 public:
  ThreadRank(ThreadGroup& group, int rank) : group_(group), rank_(rank) {}
  int num_ranks() const override { return group_.num_ranks; }
  void all_gather(const std::byte* mine, std::int64_t bytes, std::byte* all) override {
    publish(mine);
    for (int r = 0; r < group_.num_ranks; ++r) {
      std::memcpy(all + r * bytes, group_.pointers[r], static_cast<std::size_t>(bytes));
    }
    group_.barrier.arrive_and_wait();
  }
  void all_reduce_sum(const MatrixView& m) override {
    publish(m.data);
    std::vector<double> sum(m.rows * m.cols, 0.0);
    for (const void* from : group_.pointers) {
      for (std::size_t i = 0; i < sum.size(); ++i) sum[i] += static_cast<const double*>(from)[i];
    }
    group_.barrier.arrive_and_wait();
    std::memcpy(m.data, sum.data(), sum.size() * sizeof(double));
  }

 private:
  void publish(const void* mine) {
    group_.pointers[rank_] = mine;
    group_.barrier.arrive_and_wait();
  }
  ThreadGroup& group_;
  int rank_;
};

struct Data {
  std::vector<double> hidden, weight, bias, class_weight;
  std::vector<std::int64_t> target;
  Data()
      : hidden(kTokens * kHidden),
        weight(kVocab * kHidden),
        bias(kVocab),
        class_weight(kVocab),
        target(kTokens) {
    std::mt19937_64 engine(5);
    std::normal_distribution<double> normal;
    for (auto* v : {&hidden, &weight, &bias})
      for (double& x : *v) x = normal(engine);
    for (double& w : class_weight) w = 0.5 + 0.1 * static_cast<double>(engine() % 10);
    for (auto& y : target) y = static_cast<std::int64_t>(engine() % kVocab);
    target[3] = target[20] = -100;
  }
};

struct Result {
  double loss = 0;
  std::vector<double> lse = std::vector<double>(kTokens), entropy = lse;
  std::vector<std::int64_t> argmax = std::vector<std::int64_t>(kTokens);
  std::vector<double> grad_hidden = std::vector<double>(kTokens * kHidden);
  std::vector<double> grad_weight = std::vector<double>(kVocab * kHidden);
  std::vector<double> grad_bias = std::vector<double>(kVocab);
};

VectorView vec(std::vector<double>& v, std::int64_t first, std::int64_t n) {
  return {v.data() + first, n, 1, Dtype::kF64};
}
MatrixView mat(std::vector<double>& v, std::int64_t first, std::int64_t rows) {
  return {v.data() + first * kHidden, rows, kHidden, kHidden, 1, Dtype::kF64};
}

Options options() {
  Options o;
  o.label_smoothing = 0.1;
  o.z_loss = 1e-3;
  o.temperature = 0.8;
  return o;
}

// One rank's call over the rows [begin, end) of the head.
void run_rank(Data& d, Result& r, std::int64_t begin, std::int64_t end, ThreadGroup& group,
              int rank) {
  // The whole head poses the problem; the rank's views show its rows.
  Inputs in;
  in.hidden = mat(d.hidden, 0, kTokens);
  in.weight = mat(d.weight, 0, kVocab);
  in.target = {d.target.data(), kTokens, 1, Dtype::kI64};
  in.bias = vec(d.bias, 0, kVocab);
  in.class_weight = vec(d.class_weight, 0, kVocab);
  Outputs out;
  out.loss = {&r.loss, 1, 1, Dtype::kF64};
  out.lse = vec(r.lse, 0, kTokens);
  out.entropy = vec(r.entropy, 0, kTokens);
  out.argmax = {r.argmax.data(), kTokens, 1, Dtype::kI64};
  out.grad_hidden = mat(r.grad_hidden, 0, kTokens);
  out.grad_weight = mat(r.grad_weight, 0, kVocab);
  out.grad_bias = vec(r.grad_bias, 0, kVocab);
  Problem problem = problem_of(in, out, options());
  problem.vocab = end - begin;
  problem.shard = {begin, kVocab};
  in.weight = mat(d.weight, begin, end - begin);
  in.bias = vec(d.bias, begin, end - begin);
  out.grad_weight = mat(r.grad_weight, begin, end - begin);
  out.grad_bias = vec(r.grad_bias, begin, end - begin);
  PlanRequest request;
  request.method = Method::kFused;
  request.chunk = 16;
  DeviceCaps caps = cpu_caps();
  caps.num_threads = 1;
  const Plan made = plan(problem, caps, request);
  Workspace workspace(made.workspace_bytes);
  const MethodInfo& method = *find_method(Method::kFused);
  Step step;
  step.plan = &made;
  step.inputs = &in;
  step.outputs = &out;
  step.workspace = workspace.span().data();
  step.kept = method.kept(made.problem, {made.method, made.chunk, made.slab});
  const Backend& backend = *registry().backend_of(DeviceKind::kCpu);
  ThreadRank communicator(group, rank);
  std::vector<std::byte> exchange(exchange_bytes(backend, made, group.num_ranks));
  run_sharded(backend, step, communicator, exchange);
}

// `cuts` are the shard boundaries; shard s is [cuts[s], cuts[s + 1]).
std::vector<Result> run_shards(const std::vector<std::int64_t>& cuts) {
  const int ranks = static_cast<int>(cuts.size()) - 1;
  std::vector<Result> results(ranks);
  ThreadGroup group(ranks);
  Data data;
  std::vector<std::thread> threads;
  for (int r = 0; r < ranks; ++r) {
    threads.emplace_back([&, r] { run_rank(data, results[r], cuts[r], cuts[r + 1], group, r); });
  }
  for (std::thread& t : threads) t.join();
  return results;
}

void expect_near(const std::vector<double>& got, const std::vector<double>& want,
                 std::int64_t first, std::int64_t end) {
  for (std::int64_t i = first; i < end; ++i) ASSERT_NEAR(got[i], want[i], 1e-12) << i;
}

TEST(Shards, AnyCutGivesTheUnshardedResult) {
  const Result whole = run_shards({0, kVocab})[0];
  ASSERT_GT(whole.loss, 1.0);
  for (const std::vector<std::int64_t>& cuts :
       {std::vector<std::int64_t>{0, 100, kVocab}, {0, 250, 250, kVocab}, {0, 1, 400, kVocab}}) {
    const std::vector<Result> parts = run_shards(cuts);
    for (std::size_t r = 0; r < parts.size(); ++r) {
      EXPECT_NEAR(parts[r].loss, whole.loss, 1e-12);
      EXPECT_EQ(parts[r].loss, parts[0].loss) << "the same bits on every rank";
      EXPECT_EQ(parts[r].argmax, whole.argmax);
      expect_near(parts[r].lse, whole.lse, 0, kTokens);
      expect_near(parts[r].entropy, whole.entropy, 0, kTokens);
      expect_near(parts[r].grad_hidden, whole.grad_hidden, 0, kTokens * kHidden);
      expect_near(parts[r].grad_weight, whole.grad_weight, cuts[r] * kHidden,
                  cuts[r + 1] * kHidden);
      expect_near(parts[r].grad_bias, whole.grad_bias, cuts[r], cuts[r + 1]);
    }
  }
}

}  // namespace
}  // namespace flce
