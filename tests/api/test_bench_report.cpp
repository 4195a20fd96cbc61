// SPDX-License-Identifier: Apache-2.0
// What `flce bench` makes of a card's measurements, on made-up ones; random data on all processors;
// the log of watts and clock, with a program that plays nvidia-smi.
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <numeric>
#include <set>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

#include "flce/bench_card.hpp"
#include "flce/bench_csv.hpp"
#include "flce/bench_cuda_report.hpp"
#include "flce/bench_order.hpp"
#include "flce/parallel.hpp"
#include "flce/random_matrix.hpp"

namespace flce::cli {
namespace {

using Json = nlohmann::ordered_json;

// The files in bench/results begin so; their readers count on it.
constexpr const char* kColumns =
    "device,date,shape,dtype,method,route,chunk,median_ms,floor_ms,hard_floor_ms,ratio,extra_bytes,"
    "peak_bytes,predicted_bytes,err_loss,err_grad_hidden,err_grad_weight,data,set,";

BenchResult made_up() {
  BenchResult result;
  const ProblemText text = parse_problem("n4096_h4096_v128256 bf16 mean");
  result.problem = text.problem;
  result.request = text.request;
  result.card.name = "Some Card";
  result.card.floor_seconds = {0.020, 0.018, 0.019};
  result.card.hard_floor_seconds = {0.017, 0.018, 0.019};  // round by round: 1.129, 1.056, 1.005
  result.card.watts = 690.4;
  result.card.sm_mhz = 1500.0;
  BenchRow fused;
  fused.asked = bench_method_of("fused");
  fused.route = Route::kPortable;
  fused.chunk = 4096;
  fused.num_chunks = 1;
  fused.gemms = 3;
  fused.extra_bytes = fused.peak_bytes = 1000;
  fused.predicted_bytes = fused.predicted_peak_bytes = 1000;
  fused.seconds = {0.0192, 0.0190, 0.0191};
  fused.errors = {1e-7, INFINITY, -1.0};
  BenchRow naive;
  naive.asked = bench_method_of("naive");
  naive.refused = "needs 5 GB, and the card has \"4\"";
  result.rows = {fused, naive};
  return result;
}

TEST(BenchOrder, HasEachOfThemOnceAndIsTheSameAgain) {
  for (const std::size_t count : {0, 1, 2, 9}) {
    std::vector<std::size_t> all(count);
    std::iota(all.begin(), all.end(), std::size_t{0});
    for (std::int64_t round = -1; round < 20; ++round) {
      std::vector<std::size_t> order = shuffled_order(count, 1, round);
      EXPECT_EQ(order, shuffled_order(count, 1, round)) << round;
      std::sort(order.begin(), order.end());
      EXPECT_EQ(order, all) << round;
    }
  }
}

// In a cyclic order each variant always has the same one before it.
TEST(BenchOrder, NeighboursChangeFromRoundToRound) {
  constexpr std::size_t kCount = 5;
  for (const std::uint64_t seed : {0, 1, 2}) {
    std::set<std::vector<std::size_t>> orders;
    std::set<std::size_t> first;
    std::set<std::pair<std::size_t, std::size_t>> neighbours;
    for (std::int64_t round = -1; round < 40; ++round) {
      const std::vector<std::size_t> order = shuffled_order(kCount, seed, round);
      orders.insert(order);
      first.insert(order.front());
      for (std::size_t i = 1; i < kCount; ++i) neighbours.emplace(order[i - 1], order[i]);
    }
    EXPECT_GT(orders.size(), 25u) << seed;
    EXPECT_EQ(first.size(), kCount) << seed;
    EXPECT_EQ(neighbours.size(), kCount * (kCount - 1)) << seed;
  }
  EXPECT_NE(shuffled_order(9, 1, 0), shuffled_order(9, 2, 0));
}

TEST(BenchReport, ACardsRowsHaveTheFilesColumns) {
  Machine machine;
  machine.date = "2026-12-01";
  const std::string csv = csv_of(cuda_rows(made_up(), machine, "headline"));
  EXPECT_EQ(csv.rfind(kColumns, 0), 0U) << csv;
  EXPECT_NE(csv.find("Some Card,2026-12-01,4096x4096x128256,bf16,fused,portable,4096,19.1,19.0,"
                     "18.0,1.0053,1000,1000,1000,1e-07,inf,,random,headline,"),
            std::string::npos)
      << csv;
  EXPECT_NE(csv.find(",\"needs 5 GB, and the card has \"\"4\"\"\"\n"), std::string::npos) << csv;
}

TEST(BenchReport, Tf32IsAWordOfItsOwn) {
  BenchResult result = made_up();
  result.problem.dtype = Dtype::kF32;
  EXPECT_EQ(cuda_rows(result, {}, "sweep")[0]["dtype"], "f32");
  result.request.allow_tf32 = true;
  EXPECT_EQ(cuda_rows(result, {}, "sweep")[0]["dtype"], "tf32");
  EXPECT_EQ(cuda_rows(result, {}, "sweep")[0]["set"], "sweep");
}

TEST(BenchReport, TheTableNamesWhatWasRefusedOrNotTimed) {
  BenchResult result = made_up();
  BenchRow large = result.rows[0];
  large.asked = bench_method_of("naive-eager");
  large.seconds.clear();
  large.untimed = "no memory";
  result.rows.push_back(large);
  result.card.error_refused = "no room";
  const std::string text = cuda_table(result, {});
  for (const char* part :
       {"Some Card", "690 W", "1500 MHz", "19.00 ms", "1.005", "1.056", "naive refused: needs 5 GB",
        "naive-eager not timed: no memory", "errors are missing: no room"}) {
    EXPECT_NE(text.find(part), std::string::npos) << part << '\n' << text;
  }
}

TEST(BenchReport, MethodsAreReadByTheirNames) {
  for (const char* name : {"naive", "chunked", "fused", "recompute", "naive-eager", "chunked-eager",
                           "forward", "fused-liger"}) {
    EXPECT_EQ(bench_method_of(name).name(), name);
  }
  EXPECT_THROW(bench_method_of("auto"), Error);
  EXPECT_THROW(bench_method_of("liger"), Error);
}

// What one thread makes, element after element, and with the type's rounding.
TEST(RandomMatrix, IsTheSameForAnyNumberOfThreads) {
  constexpr std::int64_t kRows = 1200;
  constexpr std::int64_t kCols = 700;  // more than one piece
  std::vector<float> values(kRows * kCols);
  fill_normal({values.data(), kRows, kCols, kCols, 1, Dtype::kF32}, Random(7), 2.0, {});
  std::vector<float> again(kCols);
  Random random(7);
  random.skip((kRows - 1) * kCols);
  fill_normal({again.data(), 1, kCols, kCols, 1, Dtype::kF32}, random, 2.0, {});
  EXPECT_EQ(std::memcmp(again.data(), values.data() + (kRows - 1) * kCols, 4 * kCols), 0);
  double sum = 0.0;
  double squares = 0.0;
  for (const float value : values) {
    sum += value;
    squares += static_cast<double>(value) * value;
  }
  const auto count = static_cast<double>(values.size());
  EXPECT_NEAR(sum / count, 0.0, 0.02);
  EXPECT_NEAR(std::sqrt(squares / count), 2.0, 0.02);
}

TEST(Parallel, EveryPieceOnceAndAnExceptionComesBack) {
  std::vector<int> seen(1000, 0);
  in_parallel(1000, 7, [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t i = begin; i < end; ++i) ++seen[static_cast<std::size_t>(i)];
  });
  EXPECT_EQ(seen, std::vector<int>(1000, 1));
  in_parallel(0, 7, [&](std::int64_t, std::int64_t) { FAIL(); });
  const auto fail = [](std::int64_t, std::int64_t) { throw std::runtime_error("no"); };
  EXPECT_THROW(in_parallel(100, 7, fail), std::runtime_error);
}

TEST(CardMonitor, ReadsLinesOfNvidiaSmi) {
  const CardSample sample = card_sample_of("312.45, 1755");
  EXPECT_DOUBLE_EQ(sample.watts, 312.45);
  EXPECT_DOUBLE_EQ(sample.sm_mhz, 1755.0);
  EXPECT_LT(card_sample_of("[N/A], 1755").watts, 0.0);
  EXPECT_DOUBLE_EQ(card_sample_of("[N/A], 1755").sm_mhz, 1755.0);
  EXPECT_LT(card_sample_of("").sm_mhz, 0.0);
}

class FakeSmi : public testing::Test {
 protected:
  FakeSmi() {
    std::string pattern = (std::filesystem::temp_directory_path() / "flce-smi-XXXXXX").string();
    if (mkdtemp(pattern.data()) == nullptr) throw std::runtime_error("no temporary folder");
    folder_ = pattern;
    setenv("PATH", folder_.c_str(), 1);
  }
  ~FakeSmi() override {
    setenv("PATH", path_.c_str(), 1);
    std::filesystem::remove_all(folder_);
  }
  std::string folder_;
  std::string path_ = std::getenv("PATH");
};

TEST_F(FakeSmi, MediansOfWhatWasCounted) {
  const std::string file = folder_ + "/nvidia-smi";
  std::ofstream(file) << "#!/bin/sh\nwhile :; do echo '600.0, 1400'; /bin/sleep 0.02; done\n";
  chmod(file.c_str(), 0755);
  CardMonitor monitor(0);
  std::this_thread::sleep_for(std::chrono::milliseconds(50));
  monitor.resume();
  std::this_thread::sleep_for(std::chrono::milliseconds(300));
  monitor.pause();
  const CardSample sample = monitor.finish();
  EXPECT_DOUBLE_EQ(sample.watts, 600.0);
  EXPECT_DOUBLE_EQ(sample.sm_mhz, 1400.0);
}

TEST_F(FakeSmi, WithoutTheProgramThereAreNoSamples) {
  CardMonitor monitor(0);
  monitor.resume();
  const CardSample sample = monitor.finish();
  EXPECT_LT(sample.watts, 0.0);
  EXPECT_LT(sample.sm_mhz, 0.0);
}

}  // namespace
}  // namespace flce::cli
