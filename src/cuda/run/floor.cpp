// SPDX-License-Identifier: Apache-2.0
#include "cuda/run/floor.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>

#include "core/check.hpp"
#include "cuda/run/measure.hpp"
#include "cuda/run/products.hpp"

namespace flce::cuda {
namespace {

// What cuBLASLt gives for many shapes.
constexpr int kMostCandidates = 32;
constexpr int kFloorRounds = 7;
constexpr double kNearBest = 1.15;

double seconds_of(const Gemm& gemm, const Candidate& candidate, const Stopwatch& watch) {
  return watch.seconds([&] { run_gemm(gemm, candidate, nullptr); });
}

// The median time of each candidate, all of them in each round.
std::vector<double> time_candidates(const Gemm& gemm, const std::vector<Candidate>& candidates,
                                    int rounds) {
  const Stopwatch watch;
  std::vector<std::vector<double>> seconds(candidates.size());
  for (int round = -1; round < rounds; ++round) {
    for (std::size_t i = 0; i < candidates.size(); ++i) {
      const double one = seconds_of(gemm, candidates[i], watch);
      if (round >= 0) seconds[i].push_back(one);
    }
  }
  std::vector<double> medians;
  for (const std::vector<double>& all : seconds) medians.push_back(median_of(all));
  return medians;
}

// The fastest of them. Two rounds tell which are far from it, so that a large problem's many
// candidates do not take a minute.
Candidate fastest_of(const Gemm& gemm, const std::vector<Candidate>& candidates) {
  const std::vector<double> first = time_candidates(gemm, candidates, 1);
  const double limit = kNearBest * *std::min_element(first.begin(), first.end());
  std::vector<Candidate> near;
  for (std::size_t i = 0; i < candidates.size(); ++i) {
    if (first[i] <= limit) near.push_back(candidates[i]);
  }
  const std::vector<double> seconds = time_candidates(gemm, near, kFloorRounds);
  const auto best = std::min_element(seconds.begin(), seconds.end()) - seconds.begin();
  return near[static_cast<std::size_t>(best)];
}

struct Sizes3 {
  std::int64_t tokens;
  std::int64_t hidden;
  std::int64_t vocab;
};

// The three products on contiguous operands; a logit has `logit_dtype`.
std::array<Gemm, 3> three_products(const Sizes3& n, Dtype dtype, const Operand& x, const Operand& w,
                                   void* logits, Dtype logit_dtype, void* grad_x, void* grad_w,
                                   void* scratch) {
  std::array<Gemm, 3> all{};
  for (Gemm& g : all) {
    g.product = Product::kPlain;
    g.in = dtype;
    g.out = dtype;
    g.scratch = scratch;
    g.scratch_bytes = kGemmScratchBytes;
  }
  all[0].m = n.tokens;
  all[0].n = n.vocab;
  all[0].k = n.hidden;
  all[0].a = x;
  all[0].b = {w.data, w.row_stride, true};
  all[0].d = logits;
  all[0].out = logit_dtype;
  all[0].d_row_stride = n.vocab;
  all[1].m = n.tokens;
  all[1].n = n.hidden;
  all[1].k = n.vocab;
  all[1].a = {logits, n.vocab, false};
  all[1].b = w;
  all[1].d = grad_x;
  all[1].d_row_stride = n.hidden;
  all[2].m = n.vocab;
  all[2].n = n.hidden;
  all[2].k = n.tokens;
  all[2].a = {logits, n.vocab, true};
  all[2].b = x;
  all[2].d = grad_w;
  all[2].d_row_stride = n.hidden;
  return all;
}

class Floor final : public CudaFloor {
 public:
  Floor(const MatrixView& hidden, const MatrixView& weight, bool allow_tf32)
      : n_{hidden.rows, hidden.cols, weight.rows},
        logits_(bytes_of(n_.tokens, n_.vocab, size_of(hidden.dtype))),
        grad_hidden_(bytes_of(n_.tokens, n_.hidden, size_of(hidden.dtype))),
        grad_weight_(bytes_of(n_.vocab, n_.hidden, size_of(hidden.dtype))),
        scratch_(kGemmScratchBytes),
        gemms_(three_products(n_, hidden.dtype, {hidden.data, stride_of(hidden), false},
                              {weight.data, stride_of(weight), false}, logits_.data(), hidden.dtype,
                              grad_hidden_.data(), grad_weight_.data(), scratch_.data())) {
    for (std::size_t i = 0; i < gemms_.size(); ++i) {
      gemms_[i].allow_tf32 = allow_tf32;
      const std::vector<Candidate> candidates = candidates_of(gemms_[i], kMostCandidates);
      // The first product's results are the others' operands.
      run_gemm(gemms_[i], candidates.front(), nullptr);
      chosen_[0][i] = candidates.front();
      chosen_[1][i] = fastest_of(gemms_[i], candidates);
    }
  }

  void run(FloorProducts::Kind kind, void* stream) const override {
    const std::size_t which = kind == FloorProducts::Kind::kHard ? 1 : 0;
    for (std::size_t i = 0; i < gemms_.size(); ++i) {
      run_gemm(gemms_[i], chosen_[which][i], static_cast<cudaStream_t>(stream));
    }
  }

 private:
  Sizes3 n_;
  Block logits_, grad_hidden_, grad_weight_, scratch_;
  std::array<Gemm, 3> gemms_;
  std::array<std::array<Candidate, 3>, 2> chosen_{};
};

// cublasLtMatmulTile_t and cublasLtClusterShape_t as people write them: sizes that their names say.
std::string tile_text(int id);
std::string cluster_text(int id);

}  // namespace

std::unique_ptr<CudaFloor> make_floor(const MatrixView& hidden, const MatrixView& weight,
                                      bool allow_tf32) {
  return std::make_unique<Floor>(hidden, weight, allow_tf32);
}

std::vector<TunedProduct> tune(std::int64_t tokens, std::int64_t hidden, std::int64_t vocab,
                               Dtype dtype, int rounds) {
  const Sizes3 n{tokens, hidden, vocab};
  const Dtype wide = accumulation_dtype(dtype);
  const std::int64_t size = size_of(dtype);
  const Block x(bytes_of(tokens, hidden, size));
  const Block w(bytes_of(vocab, hidden, size));
  const Block logits(bytes_of(tokens, vocab, size_of(wide)));
  const Block grad_x(bytes_of(tokens, hidden, size));
  const Block grad_w(bytes_of(vocab, hidden, size_of(wide)));
  const Block scratch(kGemmScratchBytes);
  launch_random_rows({x.data(), hidden, dtype}, tokens, hidden, 1.0F, 1, nullptr);
  launch_random_rows({w.data(), hidden, dtype}, vocab, hidden, 0.02F, 2, nullptr);
  // The gradient of f32 logits takes their place, so its rows are as far apart.
  const std::int64_t gradient_stride = vocab * (size_of(wide) / size);
  launch_random_rows({logits.data(), gradient_stride, dtype}, tokens, vocab, 1e-3F, 3, nullptr);
  launch_random_rows({grad_w.data(), hidden, wide}, vocab, hidden, 1.0F, 4, nullptr);
  check_launch("random operands");
  std::array<Gemm, 3> ours =
      three_products(n, dtype, {x.data(), hidden, false}, {w.data(), hidden, false}, logits.data(),
                     wide, grad_x.data(), grad_w.data(), scratch.data());
  ours[1].a.row_stride = ours[2].a.row_stride = gradient_stride;
  Gemm acc = ours[2];
  acc.out = wide;
  acc.accumulate = true;
  ours[1].product = Product::kGradHidden;
  ours[2].product = Product::kGradWeight;
  acc.product = Product::kGradWeightAcc;
  ours[0].product = Product::kLogits;
  std::vector<TunedProduct> rows;
  for (const Gemm& gemm : {ours[1], ours[2], acc, ours[0]}) {
    const std::vector<Candidate> candidates = candidates_of(gemm, kMostCandidates);
    const std::vector<double> seconds = time_candidates(gemm, candidates, rounds);
    for (std::size_t i = 0; i < candidates.size(); ++i) {
      rows.push_back({name_of(gemm.product), static_cast<int>(i), tile_text(candidates[i].tile_id),
                      cluster_text(candidates[i].cluster_id), candidates[i].tile_id,
                      candidates[i].cluster_id, seconds[i]});
    }
  }
  return rows;
}

namespace {

// Some of cublasLtMatmulTile_t's several hundred, by number; others are shown by number.
struct TileName {
  int id;
  const char* name;
};
constexpr TileName kTiles[] = {
    {15, "64x64"},    {18, "128x64"},   {19, "64x256"},   {20, "128x128"}, {21, "256x64"},
    {22, "64x512"},   {23, "128x256"},  {24, "256x128"},  {25, "512x64"},  {28, "96x128"},
    {29, "128x160"},  {30, "160x128"},  {31, "192x128"},  {32, "128x192"}, {33, "128x96"},
    {197, "168x128"}, {209, "192x192"}, {248, "320x128"}, {495, "256x96"},
};
#define FLCE_CLUSTER(rows, cols) \
  { CUBLASLT_CLUSTER_SHAPE_##rows##x##cols##x1, #rows "x" #cols }
constexpr TileName kClusters[] = {
    FLCE_CLUSTER(1, 1), FLCE_CLUSTER(2, 1), FLCE_CLUSTER(4, 1),  FLCE_CLUSTER(1, 2),
    FLCE_CLUSTER(2, 2), FLCE_CLUSTER(4, 2), FLCE_CLUSTER(1, 4),  FLCE_CLUSTER(2, 4),
    FLCE_CLUSTER(8, 1), FLCE_CLUSTER(1, 8), FLCE_CLUSTER(16, 1), FLCE_CLUSTER(1, 16),
};
#undef FLCE_CLUSTER

template <std::size_t Size>
std::string name_in(const TileName (&names)[Size], int id) {
  for (const TileName& one : names) {
    if (one.id == id) return one.name;
  }
  return id == 0 ? "-" : fmt::format("#{}", id);
}

std::string tile_text(int id) { return name_in(kTiles, id); }
std::string cluster_text(int id) { return name_in(kClusters, id); }

}  // namespace

double relative_error(const MatrixView& got, const MatrixView& want) {
  require(want.dtype == Dtype::kF64 || want.dtype == Dtype::kF32,
          "want has dtype {}; a reference is in f64 or f32", flce::name_of(want.dtype));
  if (got.rows * got.cols == 0) return 0.0;
  constexpr int kBlocks = 2048;
  const Block sums(2 * kBlocks * sizeof(double));
  launch_difference({got.data, got.row_stride, got.dtype}, {want.data, want.row_stride, want.dtype},
                    got.rows, got.cols, static_cast<double*>(sums.data()), kBlocks, nullptr);
  check_launch("comparing");
  std::vector<double> parts(2 * kBlocks);
  check_cuda(
      cudaMemcpy(parts.data(), sums.data(), parts.size() * sizeof(double), cudaMemcpyDeviceToHost),
      "comparing");
  double error = 0.0;
  double size = 0.0;
  for (std::size_t i = 0; i < parts.size(); i += 2) {
    error += parts[i];
    size += parts[i + 1];
  }
  if (error == 0.0) return 0.0;
  const double relative = std::sqrt(error / size);
  return std::isfinite(relative) ? relative : std::numeric_limits<double>::infinity();
}

}  // namespace flce::cuda
