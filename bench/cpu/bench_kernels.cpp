// SPDX-License-Identifier: Apache-2.0
// Micro-benchmarks (Google Benchmark) of the tile kernels, for each instruction set that this
// processor has: bench_kernels --benchmark_filter=avx2. One thread, operands of a tile's size, so
// in cache. The rate of `peak` is what `multiply` is held against.
#include <benchmark/benchmark.h>

#include <cstdint>
#include <cstring>
#include <string>
#include <vector>

#include "cpu/kernels.hpp"

namespace flce::bench {
namespace {

using cpu::kColPad;
using cpu::kRowPad;
using cpu::kTileTokens;
using cpu::kTileVocab;
using Table = cpu::Kernels<float>;

constexpr std::int64_t kDepth = 1024;  // a hidden size: terms of the logits' sums

// `count` numbers in (0, 1), as bits of `dtype`.
class Values {
 public:
  Values(Dtype dtype, std::int64_t count)
      : bytes_(static_cast<std::size_t>(count * size_of(dtype))) {
    std::uint32_t state = 1;
    for (std::int64_t i = 0; i < count; ++i) {
      state = state * 1664525U + 1013904223U;
      const float value = static_cast<float>(state >> 8) * 0x1p-24F;
      std::uint32_t bits;
      std::memcpy(&bits, &value, sizeof bits);
      const auto high = static_cast<std::uint16_t>(bits >> 16);
      if (dtype == Dtype::kF32) {
        std::memcpy(bytes_.data() + i * 4, &bits, 4);
      } else {
        std::memcpy(bytes_.data() + i * 2, &high, 2);
      }
    }
  }
  const void* data() const { return bytes_.data(); }
  void* data() { return bytes_.data(); }

 private:
  std::vector<unsigned char> bytes_;
};

std::vector<float> packed_memory(std::int64_t rows, std::int64_t depth, float value = 0.5F) {
  return std::vector<float>(static_cast<std::size_t>((rows + kRowPad + kColPad) * depth), value);
}

void set_flops(benchmark::State& state, double flops) {
  state.counters["FLOP/s"] =
      benchmark::Counter(flops, benchmark::Counter::kIsIterationInvariantRate);
}

void set_bytes(benchmark::State& state, std::int64_t read, std::int64_t written) {
  state.SetBytesProcessed(state.iterations() * (read + written));
}

void peak(benchmark::State& state, const Table& table) {
  constexpr std::int64_t kRounds = 10000;
  for (auto _ : state) benchmark::DoNotOptimize(table.fma_burst(kRounds));
  set_flops(state, static_cast<double>(kRounds * table.flops_per_round));
}

// A word of the sum holds one term, or two in bf16.
void multiply(benchmark::State& state, const Table& table) {
  const std::int64_t words = table.words_of(kDepth);
  const std::vector<float> left = packed_memory(kTileTokens, kDepth);
  const std::vector<float> right = packed_memory(kTileVocab, kDepth);
  std::vector<float> tile(static_cast<std::size_t>(kTileTokens * kTileVocab));
  for (auto _ : state) {
    table.multiply({kTileTokens, kTileVocab, words, left.data(), right.data(), tile.data(),
                    kTileVocab, false});
    benchmark::ClobberMemory();
  }
  set_flops(state, 2.0 * kTileTokens * kTileVocab * kDepth);
}

// Whose rows lie along the sum.
void pack_rows(benchmark::State& state, const Table& table, Dtype dtype, bool left) {
  const std::int64_t rows = left ? kTileTokens : kTileVocab;
  const Values source(dtype, rows * kDepth);
  std::vector<float> packed = packed_memory(rows, kDepth);
  for (auto _ : state) {
    (left ? table.pack_left : table.pack_right)({source.data(), kDepth, rows, kDepth}, dtype,
                                                packed.data());
    benchmark::ClobberMemory();
  }
  set_bytes(state, rows * kDepth * size_of(dtype), rows * table.words_of(kDepth) * 4);
}

// Whose columns lie along the sum.
void pack_cols(benchmark::State& state, const Table& table, Dtype dtype) {
  const Values source(dtype, kTileVocab * kDepth);
  std::vector<float> packed = packed_memory(kTileVocab, kTileVocab);
  for (auto _ : state) {
    table.pack_right_cols({source.data(), kDepth, kTileVocab, kTileVocab, nullptr}, dtype,
                          packed.data());
    benchmark::ClobberMemory();
  }
  set_bytes(state, kTileVocab * kTileVocab * size_of(dtype),
            kTileVocab * table.words_of(kTileVocab) * 4);
}

// The tile holds products on entry and logits on return: without a map they are the same numbers.
void tile_row(benchmark::State& state, const Table& table, Dtype kept) {
  Values tile(Dtype::kF32, kTileVocab);
  Values exponentials(kept, kTileVocab);
  cpu::TileRow<float> row{};
  row.tile = static_cast<float*>(tile.data());
  row.cols = kTileVocab;
  row.map.scale = 1.0F;
  row.inverse_temperature = 1.0F;
  row.target = 7;
  row.exponentials = exponentials.data();
  row.kept_dtype = kept;
  for (auto _ : state) {
    benchmark::DoNotOptimize(table.tile_row(row));
    benchmark::ClobberMemory();
  }
  state.SetItemsProcessed(state.iterations() * kTileVocab);
  set_bytes(state, kTileVocab * 4, kTileVocab * size_of(kept));
}

// Kept exponentials of one tile -> the packed gradient, for either product.
void pack_gradient(benchmark::State& state, const Table& table, Dtype kept, bool by_token) {
  const Values exponentials(kept, kTileTokens * kTileVocab);
  const std::vector<float> tile_max(kTileTokens, 0.25F);
  cpu::RowCoefficients<float> row{};
  row.max = 0.5F;
  row.a = row.q = 0.01F;
  row.scale = 1.0F;
  row.inverse_temperature = 1.0F;
  row.active = true;
  row.target = -1;
  const std::vector<cpu::RowCoefficients<float>> rows(kTileTokens, row);
  cpu::GradientBlock<float> block{};
  block.kept = exponentials.data();
  block.kept_stride = kTileVocab;
  block.kept_dtype = kept;
  block.is_apart = table.terms > 1;
  block.rows = rows.data();
  block.tile_max = tile_max.data();
  block.tile_stride = 1;
  block.map.scale = 1.0F;
  block.alpha = 1.0F;
  block.num_tokens = kTileTokens;
  block.num_cols = kTileVocab;
  std::vector<float> packed = packed_memory(kTileVocab, kTileVocab);
  for (auto _ : state) {
    if (by_token) {
      table.pack_gradient_by_token(block, packed.data());
    } else {
      table.pack_gradient_by_vocab(block, packed.data(), nullptr);
    }
    benchmark::ClobberMemory();
  }
  const std::int64_t words = by_token ? kTileTokens * table.words_of(kTileVocab)
                                      : kTileVocab * table.words_of(kTileTokens);
  set_bytes(state, kTileTokens * kTileVocab * size_of(kept), words * 4);
}

template <typename Body>
void add(const std::string& name, Body body) {
  benchmark::RegisterBenchmark(name.c_str(), body);
}

void add_table(const Table& table) {
  const std::string isa = std::string(table.isa) + "/";
  add(isa + "peak", [&](benchmark::State& s) { peak(s, table); });
  add(isa + "multiply", [&](benchmark::State& s) { multiply(s, table); });
  for (const Dtype dtype : {Dtype::kF32, Dtype::kBF16}) {
    if (table.terms > 1 && dtype == Dtype::kF32) continue;  // these tables serve bf16 alone
    const std::string end = std::string("/") + name_of(dtype);
    add(isa + "pack_left" + end,
        [&table, dtype](benchmark::State& s) { pack_rows(s, table, dtype, true); });
    add(isa + "pack_right" + end,
        [&table, dtype](benchmark::State& s) { pack_rows(s, table, dtype, false); });
    add(isa + "pack_right_cols" + end,
        [&table, dtype](benchmark::State& s) { pack_cols(s, table, dtype); });
    add(isa + "tile_row" + end,
        [&table, dtype](benchmark::State& s) { tile_row(s, table, dtype); });
    add(isa + "pack_gradient_by_token" + end,
        [&table, dtype](benchmark::State& s) { pack_gradient(s, table, dtype, true); });
    add(isa + "pack_gradient_by_vocab" + end,
        [&table, dtype](benchmark::State& s) { pack_gradient(s, table, dtype, false); });
  }
}

void add_tables() {
  add_table(cpu::portable_kernels<float>());
#if defined(__x86_64__)
  if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma")) {
    add_table(cpu::avx2_kernels<float>());
  }
  if (__builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
      __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl")) {
    add_table(cpu::avx512_kernels<float>());
    if (__builtin_cpu_supports("avx512bf16")) add_table(cpu::avx512bf16_kernels());
  }
#endif
}

}  // namespace
}  // namespace flce::bench

int main(int argc, char** argv) {
  benchmark::Initialize(&argc, argv);
  if (benchmark::ReportUnrecognizedArguments(argc, argv)) return 2;
  flce::bench::add_tables();
  benchmark::RunSpecifiedBenchmarks();
  benchmark::Shutdown();
}
