// SPDX-License-Identifier: Apache-2.0
// Three oneDNN matmul primitives and the softmax pass: f32, and bf16 where the processor has
// AVX-512-BF16. A module of its own, as rival_openblas.cpp. Primitives are made in `prepare`, which
// is not timed.
#include <omp.h>

#include <dnnl.hpp>
#include <map>

#include "bf16.hpp"
#include "unfused.hpp"

namespace flce::bench {
namespace {

using dnnl::memory;
using DataType = memory::data_type;

struct Operand {
  std::int64_t rows;
  std::int64_t cols;
  std::int64_t row_stride;
  std::int64_t col_stride;
  DataType type;

  memory::desc desc() const { return {{rows, cols}, type, {row_stride, col_stride}}; }
};

struct Product {
  dnnl::matmul primitive;
  memory::desc left;
  memory::desc right;
  memory::desc result;
  std::string kernel;
};

class OneDnn final : public Unfused {
 public:
  OneDnn(const Case& shape, Data& data, Workers& workers, std::string name)
      : Unfused(shape, data, workers,
                shape.dtype == Dtype::kF32 ? std::vector<Kept>{Kept::kF32}
                                           : std::vector<Kept>{Kept::kF32ToBf16, Kept::kBf16}),
        name_(std::move(name)),
        engine_(dnnl::engine::kind::cpu, 0),
        stream_(engine_) {}

  void run() override {
    omp_set_num_threads(shape_.threads);
    Unfused::run();
  }

  SystemFacts facts() const override {
    SystemFacts facts;
    facts.system = name_;
    facts.method = "unfused";
    facts.kernel = kernel_ + " (" + kept_name() + ")";
    const dnnl_version_t* version = dnnl_version();
    facts.version = "oneDNN " + std::to_string(version->major) + "." +
                    std::to_string(version->minor) + "." + std::to_string(version->patch);
    facts.chunk = chunk_;
    facts.extra_bytes = extra_bytes();
    return facts;
  }

 private:
  DataType input() const { return shape_.dtype == Dtype::kF32 ? DataType::f32 : DataType::bf16; }
  bool sums_apart() const { return shape_.dtype != Dtype::kF32 && chunk_ < shape_.tokens; }
  DataType grad_weight_type() const { return sums_apart() ? DataType::f32 : input(); }

  // Primitives depend on the number of rows alone: a full chunk and perhaps a last, smaller one.
  void prepare_products() override {
    omp_set_num_threads(shape_.threads);
    products_.clear();
    grad_weight_sum_ = Buffer();
    if (sums_apart()) {
      grad_weight_sum_ = Buffer(static_cast<std::uint64_t>(shape_.vocab * shape_.hidden) * 4);
    }
    kernel_.clear();
    prepare_rows(chunk_);
    if (shape_.tokens % chunk_ != 0) prepare_rows(shape_.tokens % chunk_);
  }

  void prepare_rows(std::int64_t rows) {
    const std::int64_t h = shape_.hidden;
    const std::int64_t v = shape_.vocab;
    const std::int64_t stride = gradient_stride();
    const DataType logits = layout_ == Kept::kBf16 ? DataType::bf16 : DataType::f32;
    const Operand weight{v, h, h, 1, input()};
    const Operand hidden{rows, h, h, 1, input()};
    const Operand gradient{rows, v, stride, 1, input()};
    Products& made = products_[rows];
    made.logits = make({rows, h, h, 1, input()}, {h, v, 1, h, input()}, {rows, v, v, 1, logits}, 0);
    made.grad_hidden = make(gradient, weight, {rows, h, h, 1, input()}, 0);
    const Operand transposed{v, rows, 1, stride, input()};
    const Operand sum{v, h, h, 1, grad_weight_type()};
    made.grad_weight = make(transposed, hidden, sum, 0);
    made.grad_weight_add = make(transposed, hidden, sum, 1);
    kernel_ = made.logits.kernel;
    for (const Product* other : {&made.grad_hidden, &made.grad_weight}) {
      if (kernel_.find(other->kernel) == std::string::npos) kernel_ += "+" + other->kernel;
    }
  }

  Product make(const Operand& left, const Operand& right, const Operand& result, int add) {
    dnnl::primitive_attr attributes;
    if (add != 0) {
      dnnl::post_ops sum;
      sum.append_sum(1.0F);
      attributes.set_post_ops(sum);
    }
#if DNNL_VERSION_MAJOR >= 3
    const dnnl::matmul::primitive_desc desc(engine_, left.desc(), right.desc(), result.desc(),
                                            attributes);
#else
    const dnnl::matmul::primitive_desc desc(
        dnnl::matmul::desc(left.desc(), right.desc(), result.desc()), attributes, engine_);
#endif
    return {dnnl::matmul(desc), left.desc(), right.desc(), result.desc(), desc.impl_info_str()};
  }

  void execute(const Product& product, void* left, void* right, void* result) {
    product.primitive.execute(stream_, {{DNNL_ARG_SRC, {product.left, engine_, left}},
                                        {DNNL_ARG_WEIGHTS, {product.right, engine_, right}},
                                        {DNNL_ARG_DST, {product.result, engine_, result}}});
    stream_.wait();
  }

  void multiply_logits(const Chunk& chunk) override {
    execute(products_.at(chunk.rows).logits, rows_of(data_.hidden, chunk), data_.weight.data(),
            logits_.data());
  }

  void multiply_grad_hidden(const Chunk& chunk) override {
    execute(products_.at(chunk.rows).grad_hidden, logits_.data(), data_.weight.data(),
            rows_of(data_.grad_hidden, chunk));
  }

  void multiply_grad_weight(const Chunk& chunk) override {
    const Products& made = products_.at(chunk.rows);
    execute(chunk.first > 0 ? made.grad_weight_add : made.grad_weight, logits_.data(),
            rows_of(data_.hidden, chunk),
            sums_apart() ? grad_weight_sum_.data() : data_.grad_weight.data());
  }

  void finish() override {
    if (!sums_apart()) return;
    workers_.run(shape_.vocab, [&](std::int64_t row) {
      const float* from = grad_weight_sum_.as<float>() + row * shape_.hidden;
      std::uint16_t* to = data_.grad_weight.as<std::uint16_t>() + row * shape_.hidden;
      for (std::int64_t i = 0; i < shape_.hidden; ++i) to[i] = f32_to_bf16(from[i]);
    });
  }

  std::uint64_t product_bytes() const override { return grad_weight_sum_.size(); }

  std::byte* rows_of(const Buffer& buffer, const Chunk& chunk) const {
    return buffer.data() + chunk.first * shape_.hidden * size_of(shape_.dtype);
  }

  struct Products {
    Product logits;
    Product grad_hidden;
    Product grad_weight;
    Product grad_weight_add;
  };

  std::string name_;
  dnnl::engine engine_;
  dnnl::stream stream_;
  std::map<std::int64_t, Products> products_;
  std::string kernel_;
  Buffer grad_weight_sum_;
};

bool has_bf16() {
  constexpr int kBf16 = dnnl_cpu_isa_avx512_core_bf16;
  return (static_cast<int>(dnnl::get_effective_cpu_isa()) & kBf16) == kBf16;
}

}  // namespace
}  // namespace flce::bench

extern "C" __attribute__((visibility("default"))) flce::bench::System* flce_bench_rival(
    const flce::bench::Case& shape, flce::bench::Data& data, flce::bench::Workers& workers,
    const char* variant_name, std::string& refusal) {
  if (shape.dtype == flce::Dtype::kBF16 && !flce::bench::has_bf16()) {
    refusal = "this processor (or ONEDNN_MAX_CPU_ISA) has no AVX-512-BF16 for oneDNN";
    return nullptr;
  }
  return new flce::bench::OneDnn(shape, data, workers, std::string("onednn") + variant_name);
}
