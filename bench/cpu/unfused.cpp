// SPDX-License-Identifier: Apache-2.0
#include "unfused.hpp"

#include <algorithm>
#include <stdexcept>

namespace flce::bench {
namespace {

constexpr std::int64_t kRowsPerTask = 4;

}  // namespace

Unfused::Unfused(const Case& shape, Data& data, Workers& workers, std::vector<Kept> kept)
    : shape_(shape), data_(data), workers_(workers), kept_(std::move(kept)) {
  if (shape.vocab > kSoftmaxMaxCols) throw std::runtime_error("softmax: the vocabulary is too big");
  losses_.resize(static_cast<std::size_t>(shape.tokens));
  // A large head costs a minute a try, so it gets the two extremes that differ.
  const bool large = shape.flops() > 1e12;
  chunks_ = {shape.tokens};
  for (const std::int64_t chunk : {1024, 512, 256}) {
    if (chunk < shape.tokens && (!large || chunk == 512)) chunks_.push_back(chunk);
  }
}

void Unfused::prepare(int variant) {
  const auto index = static_cast<std::size_t>(variant);
  chunk_ = chunks_[index % chunks_.size()];
  layout_ = kept_[index / chunks_.size()];
  const std::uint64_t element = layout_ == Kept::kBf16 ? 2 : 4;
  logits_ = Buffer();
  logits_ = Buffer(static_cast<std::uint64_t>(chunk_ * shape_.vocab) * element);
  prepare_products();
}

void Unfused::run() {
  for (std::int64_t first = 0; first < shape_.tokens; first += chunk_) {
    const std::int64_t rows = std::min(chunk_, shape_.tokens - first);
    const Chunk chunk{first, rows, first + rows == shape_.tokens};
    multiply_logits(chunk);
    softmax(chunk);
    multiply_grad_hidden(chunk);
    multiply_grad_weight(chunk);
  }
  finish();
  double sum = 0.0;
  for (const float loss : losses_) sum += static_cast<double>(loss);
  data_.loss = static_cast<float>(sum / static_cast<double>(shape_.tokens));
}

void Unfused::softmax(const Chunk& chunk) {
  const SoftmaxTable& table = softmax_table();
  const auto one_row = layout_ == Kept::kF32         ? table.f32
                       : layout_ == Kept::kF32ToBf16 ? table.f32_to_bf16
                                                     : table.bf16;
  const std::int64_t row_bytes = shape_.vocab * (layout_ == Kept::kBf16 ? 2 : 4);
  const float scale = 1.0F / static_cast<float>(shape_.tokens);
  workers_.run((chunk.rows + kRowsPerTask - 1) / kRowsPerTask, [&](std::int64_t task) {
    const std::int64_t end = std::min(chunk.rows, (task + 1) * kRowsPerTask);
    for (std::int64_t i = task * kRowsPerTask; i < end; ++i) {
      const std::int64_t token = chunk.first + i;
      losses_[static_cast<std::size_t>(token)] =
          one_row({logits_.data() + i * row_bytes, shape_.vocab,
                   data_.target.as<std::int64_t>()[token], scale});
    }
  });
}

std::uint64_t Unfused::extra_bytes() const {
  return logits_.size() + losses_.size() * sizeof(float) + product_bytes();
}

std::int64_t Unfused::gradient_stride() const {
  return layout_ == Kept::kF32ToBf16 ? 2 * shape_.vocab : shape_.vocab;
}

std::string Unfused::kept_name() const {
  return layout_ == Kept::kF32         ? "f32 logits"
         : layout_ == Kept::kF32ToBf16 ? "f32 logits bf16 gradient"
                                       : "bf16 logits";
}

}  // namespace flce::bench
