// SPDX-License-Identifier: Apache-2.0
// What a call takes on the card is what was planned: to the byte by the library's own count, and
// within the driver's granularity by the driver's. Runs alone: the driver counts for the whole
// card.
#include <gtest/gtest.h>

#include "cases/case_support.hpp"
#include "flce/device.hpp"
#include "gpu/packed_call.hpp"

namespace flce_test {
namespace {

using flce::Dtype;
using flce::Method;

constexpr std::uint64_t kMiB = 1024 * 1024;

// Loads what the first call of a shape loads, so that it is not counted.
void warm_up(const Case& c, const RunConfig& config) {
  const PackedCall call(c, config);
  call.run(nullptr);
  flce::cuda_synchronize();
}

// The plan of a call whose memory was measured.
flce::Plan measured(const Case& c, const RunConfig& config) {
  warm_up(c, config);
  flce::cuda_reset_peak_memory();
  const flce::CudaMemoryUse before = flce::cuda_memory_use();
  const PackedCall call(c, config);
  const flce::CudaMemoryUse allocated = flce::cuda_memory_use();
  call.run(nullptr);
  flce::cuda_synchronize();
  const flce::CudaMemoryUse after = flce::cuda_memory_use();
  const std::string text = describe(c, config);
  EXPECT_EQ(after.peak_allocated_bytes - before.allocated_bytes, call.plan().peak_bytes) << text;
  // The run itself takes nothing.
  EXPECT_EQ(after.device_used_bytes, allocated.device_used_bytes) << text;
  const std::uint64_t used = after.device_used_bytes - before.device_used_bytes;
  const auto slack = static_cast<std::uint64_t>(call.num_buffers()) * 2 * kMiB;
  EXPECT_LE(used, call.plan().peak_bytes + slack) << text;
  EXPECT_GE(used + slack, call.plan().peak_bytes) << text;
  return call.plan();
}

class GpuMemory : public testing::TestWithParam<MethodAndDtype> {};

TEST_P(GpuMemory, ThePeakIsThePlansToTheByte) {
  const Method method = GetParam().method;
  const Dtype dtype = GetParam().dtype;
  Case c = basic_case({2048, 128, 8000}, dtype, 60);
  for (const std::int64_t chunk : {0, 300}) measured(c, {method, chunk});
  c.wants.grad_weight = false;
  measured(c, {method, 512});
  c.wants.grad_hidden = false;
  measured(c, {method, 512});
}

INSTANTIATE_TEST_SUITE_P(Gpu, GpuMemory, testing::ValuesIn(methods_and_dtypes()), param_name);

// Values do not matter to memory; zeros are quick to make.
Case zeros(const Sizes& sizes) {
  Case c;
  c.dtype = Dtype::kBF16;
  c.in.tokens = sizes.tokens;
  c.in.hidden = sizes.hidden;
  c.in.vocab = sizes.vocab;
  c.in.x.assign(static_cast<std::size_t>(sizes.tokens * sizes.hidden), 0.0);
  c.in.w.assign(static_cast<std::size_t>(sizes.vocab * sizes.hidden), 0.0);
  c.in.target.assign(static_cast<std::size_t>(sizes.tokens), 1);
  return c;
}

// One accumulator of V*H in f32, whatever the number of chunks.
TEST(GpuMemoryCases, C069_ChunksAddOneAccumulator) {
  const Case c = zeros({8192, 4096, 32000});
  const std::uint64_t accumulator = 32000ull * 4096 * 4;
  for (const std::int64_t chunk : {512, 2048, 4096}) {
    const flce::Plan plan = measured(c, {Method::kFused, chunk});
    const auto of_chunk = static_cast<std::uint64_t>(chunk * (32000 * 4 + 4096 * 2));
    EXPECT_LE(plan.extra_bytes, accumulator + of_chunk + 33 * kMiB + 8192 * 256) << chunk;
  }
}

TEST(GpuMemoryCases, C070_AFrozenHeadNeedsNoVocabularySizedBuffer) {
  Case c = zeros({2048, 1024, 131072});
  Rng rng(61);
  for (double& x : c.in.x) x = round_to(Dtype::kBF16, rng.uniform(-1.0, 1.0));
  for (std::int64_t i = 0; i < 131072; ++i) c.in.w[i * 1024 + i % 1024] = 1.0;
  const RunConfig config{Method::kFused, 512};
  const auto grad_hidden = [&](const Case& which) {
    const PackedCall call(which, config);
    call.run(nullptr);
    std::vector<std::byte> bytes = call.output_bytes();  // the loss, grad_hidden, grad_weight
    return std::vector<std::byte>(bytes.begin() + 4, bytes.begin() + 4 + 2048 * 1024 * 2);
  };
  const std::vector<std::byte> trained = grad_hidden(c);
  c.wants.grad_weight = false;
  EXPECT_TRUE(grad_hidden(c) == trained);
  const flce::Plan plan = measured(c, config);
  EXPECT_LE(plan.extra_bytes, 512ull * (131072 * 4 + 1024 * 2) + 33 * kMiB + 2048 * 256);
  EXPECT_LE(plan.output_bytes, 2048ull * 1024 * 2 + 4);
}

TEST(GpuMemoryCases, C071_EvaluationKeepsNothing) {
  Case c = zeros({8192, 1024, 131072});
  c.wants = {.grad_hidden = false, .grad_weight = false};
  for (const Method method : {Method::kFused, Method::kRecompute, Method::kChunked}) {
    const flce::Plan plan = measured(c, {method, 1024});
    EXPECT_LE(plan.extra_bytes, 128 * kMiB + 33 * kMiB + 8192 * 256) << flce::name_of(method);
  }
}

}  // namespace
}  // namespace flce_test
