// SPDX-License-Identifier: Apache-2.0
// The best unfused computation, whoever multiplies: per chunk of tokens the logits, one vectorised
// softmax pass that leaves the gradient in their place, and two products. A rival gives the
// products.
#pragma once

#include <vector>

#include "softmax.hpp"
#include "system.hpp"

namespace flce::bench {

class Unfused : public System {
 public:
  // How logits and gradients of logits are kept.
  enum class Kept { kF32, kF32ToBf16, kBf16 };

  Unfused(const Case& shape, Data& data, Workers& workers, std::vector<Kept> kept);

  int num_variants() const override { return static_cast<int>(kept_.size() * chunks_.size()); }
  void prepare(int variant) override;
  void run() override;

 protected:
  struct Chunk {
    std::int64_t first;
    std::int64_t rows;
    bool last;
  };

  // Products of one chunk; logits() holds rows x vocab logits, later their gradient.
  virtual void prepare_products() {}
  virtual void multiply_logits(const Chunk& chunk) = 0;
  virtual void multiply_grad_hidden(const Chunk& chunk) = 0;
  virtual void multiply_grad_weight(const Chunk& chunk) = 0;  // chunk.first > 0: adds
  // The gradient of the weight when it was summed elsewhere than in the caller's memory.
  virtual void finish() {}
  virtual std::uint64_t product_bytes() const { return 0; }

  std::uint64_t extra_bytes() const;
  // Elements of the gradient from one row to the next.
  std::int64_t gradient_stride() const;
  std::string kept_name() const;

  const Case shape_;
  Data& data_;
  Workers& workers_;
  std::int64_t chunk_ = 0;
  Kept layout_ = Kept::kF32;
  Buffer logits_;

 private:
  void softmax(const Chunk& chunk);

  std::vector<Kept> kept_;
  std::vector<std::int64_t> chunks_;
  std::vector<float> losses_;
};

}  // namespace flce::bench
