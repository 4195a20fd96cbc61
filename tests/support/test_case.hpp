// SPDX-License-Identifier: Apache-2.0
// One test case: the oracle's input (values) and how they come to the library (element types,
// strides, wanted results). Generators make cases from a seed.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "flce/flce.hpp"
#include "oracle/oracle.hpp"
#include "support/rng.hpp"

namespace flce_test {

struct Layout {
  std::int64_t hidden_gap = 0;  // elements between the rows
  std::int64_t weight_gap = 0;
  std::int64_t grad_gap = 0;
  std::int64_t output_gap = 0;  // between the elements of per-token outputs, rows of top-k
  std::int64_t offset = 0;      // elements from a 64-byte boundary, of every operand
  std::int64_t target_stride = 1;
  std::int64_t bias_stride = 1;  // 0 only where all values are equal; the same for the next three
  std::int64_t class_weight_stride = 1;
  std::int64_t token_weight_stride = 1;
  std::int64_t upstream_stride = 1;
  bool reversed_rows = false;  // hidden and weight with a negative row stride
};

struct Case {
  oracle::Input in;
  flce::Dtype dtype = flce::Dtype::kF32;
  flce::Dtype target_dtype = flce::Dtype::kI64;
  flce::Dtype vector_dtype = flce::Dtype::kNone;      // bias, weights, upstream; kNone: dtype
  flce::Dtype normalizer_dtype = flce::Dtype::kNone;  // kNone: a host number, if there is any
  flce::Dtype grad_weight_dtype = flce::Dtype::kNone;
  flce::Dtype grad_bias_dtype = flce::Dtype::kNone;
  flce::Wants wants;
  std::vector<double> grad_weight_start;  // accumulated into; empty: written
  std::vector<double> grad_bias_start;
  Layout layout;
  std::uint64_t seed = 0;

  flce::Dtype vectors() const { return vector_dtype == flce::Dtype::kNone ? dtype : vector_dtype; }
  flce::Dtype grad_weight_type() const {
    return grad_weight_dtype == flce::Dtype::kNone ? dtype : grad_weight_dtype;
  }
  flce::Dtype grad_bias_type() const {
    return grad_bias_dtype == flce::Dtype::kNone ? vectors() : grad_bias_dtype;
  }
};

flce::Options options_of(const Case& c);

struct Sizes {
  std::int64_t tokens = 0;
  std::int64_t hidden = 0;
  std::int64_t vocab = 0;
};

enum class Data {
  kRandom,      // logits of standard deviation about 1
  kPeaked,      // about 8
  kConfident,   // p of the target near 1 (from about H = 16 on)
  kCommonMean,  // every row of the weight shares a large mean row
};

// A case with random hidden, weight and targets, all else at its default. Values are rounded.
Case basic_case(const Sizes& sizes, flce::Dtype dtype, std::uint64_t seed,
                Data data = Data::kRandom);
// About `share` of the targets become ignore_index.
void ignore_some(Case& c, double share, Rng& rng);
// NaN and infinity in the hidden rows, weights and upstream of tokens without a target.
void poison_ignored(Case& c, Rng& rng);
// Adds one per-token or per-class vector of random positive values.
std::vector<double> random_weights(const Case& c, std::int64_t count, Rng& rng);
std::vector<double> random_normals(flce::Dtype dtype, std::int64_t count, double size, Rng& rng);

// A case with random sizes, options, wants, types and strides.
Case random_case(flce::Dtype dtype, std::uint64_t seed);

}  // namespace flce_test
