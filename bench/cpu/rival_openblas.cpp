// SPDX-License-Identifier: Apache-2.0
// Three OpenBLAS products and the softmax pass, f32. A module of its own: it is loaded after the
// environment is set, and a machine without OpenBLAS leaves it out.
#include <cblas.h>

#include "unfused.hpp"

namespace flce::bench {
namespace {

class OpenBlas final : public Unfused {
 public:
  OpenBlas(const Case& shape, Data& data, Workers& workers)
      : Unfused(shape, data, workers, {Kept::kF32}) {}

  void run() override {
    openblas_set_num_threads(shape_.threads);
    Unfused::run();
  }

  SystemFacts facts() const override {
    SystemFacts facts;
    facts.system = "openblas";
    facts.method = "unfused";
    facts.kernel = openblas_get_corename();
    const std::string config = openblas_get_config();  // "OpenBLAS 0.3.21 NO_LAPACKE ..."
    facts.version = config.substr(0, config.find(' ', config.find(' ') + 1));
    facts.chunk = chunk_;
    facts.extra_bytes = extra_bytes();
    return facts;
  }

 private:
  void multiply_logits(const Chunk& chunk) override {
    const auto h = static_cast<blasint>(shape_.hidden);
    const auto v = static_cast<blasint>(shape_.vocab);
    cblas_sgemm(CblasRowMajor, CblasNoTrans, CblasTrans, static_cast<blasint>(chunk.rows), v, h,
                1.0F, hidden(chunk), h, data_.weight.as<float>(), h, 0.0F, logits_.as<float>(), v);
  }

  void multiply_grad_hidden(const Chunk& chunk) override {
    const auto h = static_cast<blasint>(shape_.hidden);
    const auto v = static_cast<blasint>(shape_.vocab);
    float* const out = data_.grad_hidden.as<float>() + chunk.first * shape_.hidden;
    cblas_sgemm(CblasRowMajor, CblasNoTrans, CblasNoTrans, static_cast<blasint>(chunk.rows), h, v,
                1.0F, logits_.as<float>(), v, data_.weight.as<float>(), h, 0.0F, out, h);
  }

  void multiply_grad_weight(const Chunk& chunk) override {
    const auto h = static_cast<blasint>(shape_.hidden);
    const auto v = static_cast<blasint>(shape_.vocab);
    cblas_sgemm(CblasRowMajor, CblasTrans, CblasNoTrans, v, h, static_cast<blasint>(chunk.rows),
                1.0F, logits_.as<float>(), v, hidden(chunk), h, chunk.first > 0 ? 1.0F : 0.0F,
                data_.grad_weight.as<float>(), h);
  }

  const float* hidden(const Chunk& chunk) const {
    return data_.hidden.as<float>() + chunk.first * shape_.hidden;
  }
};

}  // namespace
}  // namespace flce::bench

extern "C" __attribute__((visibility("default"))) flce::bench::System* flce_bench_rival(
    const flce::bench::Case& shape, flce::bench::Data& data, flce::bench::Workers& workers,
    const char*, std::string& refusal) {
  if (shape.dtype != flce::Dtype::kF32) {
    refusal = "OpenBLAS multiplies f32 only";
    return nullptr;
  }
  return new flce::bench::OpenBlas(shape, data, workers);
}
