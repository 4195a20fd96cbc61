// SPDX-License-Identifier: Apache-2.0
// The names of what is measured, and the figures that follow from its times.
#include <fmt/core.h>

#include <algorithm>
#include <string>
#include <utility>

#include "bench_measure.hpp"

namespace flce::cli {
namespace {

constexpr const char* kForward = "forward";
constexpr const char* kFusedLiger = "fused-liger";

}  // namespace

std::string BenchMethod::name() const {
  return is_forward ? kForward : is_liger ? kFusedLiger : name_of(method);
}

BenchMethod bench_method_of(std::string_view name) {
  if (name == kForward) return {Method::kAuto, true, false};
  if (name == kFusedLiger) return {Method::kFused, false, true};
  try {
    const Method method = method_of(name);
    if (method != Method::kAuto) return {method, false, false};
  } catch (const Error& error) {
    throw Error(ErrorCode::kInvalidArgument,
                fmt::format("--methods: {}; also {} and {}", error.what(), kForward, kFusedLiger));
  }
  throw Error(ErrorCode::kInvalidArgument,
              "--methods auto: name the methods to compare, such as naive,fused");
}

double median_of(std::vector<double> values) {
  if (values.empty()) return -1.0;
  std::sort(values.begin(), values.end());
  const std::size_t half = values.size() / 2;
  return values.size() % 2 == 1 ? values[half] : 0.5 * (values[half - 1] + values[half]);
}

double BenchRow::seconds_median() const { return median_of(seconds); }

double BenchRow::seconds_min() const {
  return seconds.empty() ? -1.0 : *std::min_element(seconds.begin(), seconds.end());
}

double BenchRow::seconds_max() const {
  return seconds.empty() ? -1.0 : *std::max_element(seconds.begin(), seconds.end());
}

double BenchRow::gflops(const Problem& problem) const {
  if (seconds.empty()) return -1.0;
  return 2e-9 * gemms * static_cast<double>(problem.tokens) * static_cast<double>(problem.hidden) *
         static_cast<double>(problem.vocab) / seconds_median();
}

double BenchResult::share_of_peak(const BenchRow& row) const {
  const double gflops = row.gflops(problem);
  return gflops < 0.0 || figures.matmul_flops <= 0.0 ? -1.0 : gflops * 1e9 / figures.matmul_flops;
}

double BenchResult::ratio_to_naive(const BenchRow& row) const {
  for (const BenchRow& other : rows) {
    if (other.asked.name() != name_of(Method::kNaive) || other.seconds.empty() ||
        row.seconds.empty())
      continue;
    return row.seconds_median() / other.seconds_median();
  }
  return -1.0;
}

}  // namespace flce::cli
