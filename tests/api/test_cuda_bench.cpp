// SPDX-License-Identifier: Apache-2.0
// `flce bench` on a card, real or pretended: planned bytes are allocated bytes, errors are those
// against float64, and the file has the columns that bench/cuda_rows.py reads.
#include <nlohmann/json.hpp>
#include <set>

#include "cli_folder.hpp"
#include "flce/device.hpp"

namespace flce::test {
namespace {

using Json = nlohmann::json;

class CudaBench : public Folder {
 protected:
  CudaBench() : Folder("") {}
  Json bench(const std::string& args) const {
    return Json::parse(fine("bench --device cuda --warm-seconds 0 " + args + " --json -"));
  }
  std::size_t count_lines(const std::string& name) const {
    const std::string text = read_file(path(name));
    return static_cast<std::size_t>(std::count(text.begin(), text.end(), '\n'));
  }
};

TEST_F(CudaBench, PlannedBytesAreAllocatedBytes) {
  for (const char* problem :
       {"n96_h32_v500 bf16 mean", "n96_h32_v500 f32 none upstream=per_token bias grad_bias split",
        "n96_h32_v500 f16 sum accumulate grad_weight=f32 lse entropy"}) {
    const Json rows = bench("'" + std::string(problem) + "' --rounds 2 --chunks 1,3 " +
                            "--methods naive,chunked,fused,recompute");
    std::size_t serving = 0;
    for (const Json& row : rows) {
      if (row["refused"] != "") continue;  // fused, where the upstream gradient comes later
      ++serving;
      EXPECT_EQ(row["device"], cuda_devices()[0].name);
      EXPECT_EQ(row["extra_bytes"], row["predicted_bytes"]) << row;
      EXPECT_EQ(row["peak_bytes"], row["predicted_peak_bytes"]) << row;
      EXPECT_TRUE(row["route"] == "portable" || row["route"] == "hopper") << row;
      EXPECT_EQ(row["rounds"], 2);
      EXPECT_GT(row["median_ms"].get<double>(), 0.0);
      EXPECT_LT(row["err_loss"].get<double>(), 1e-4) << row;
      EXPECT_LT(row["err_grad_hidden"].get<double>(), 1e-2) << row;
      EXPECT_LT(row["err_grad_weight"].get<double>(), 1e-2) << row;
    }
    EXPECT_GE(serving, 5U) << rows;
  }
}

TEST_F(CudaBench, ForwardAndLigerAreLinesOfTheirOwn) {
  const Json rows =
      bench("n64_h8_v300 bf16 --rounds 1 --methods fused,forward,fused-liger,naive-eager");
  ASSERT_EQ(rows.size(), 4U);
  EXPECT_EQ(rows[1]["method"], "forward");
  EXPECT_TRUE(rows[1]["err_grad_hidden"].is_null());
  EXPECT_EQ(rows[1]["peak_bytes"], rows[1]["predicted_peak_bytes"]);
  EXPECT_LT(rows[1]["peak_bytes"], rows[0]["peak_bytes"]);
  EXPECT_EQ(rows[2]["policy"], "liger");
  EXPECT_EQ(rows[2]["chunk"], 2);
}

TEST_F(CudaBench, StepsFillOneFile) {
  const std::string bench =
      "bench --device cuda --warm-seconds 0 n64_h8_v300 bf16 --csv o.csv --append --methods "
      "naive,fused ";
  fine(bench + "--rounds 1");
  fine(bench + "--rounds 0 --data peaked --set sweep --chunks 1,2 --svg m.svg");
  const std::string text = read_file(path("o.csv"));
  EXPECT_EQ(text.rfind("device,date,shape,dtype,method,route,chunk,median_ms,", 0), 0U) << text;
  EXPECT_EQ(count_lines("o.csv"), 1U + 2 + 3) << text;
  EXPECT_TRUE(contains(text, ",random,headline,")) << text;
  EXPECT_TRUE(contains(text, ",peaked,sweep,")) << text;
  EXPECT_TRUE(contains(read_file(path("m.svg")), cuda_devices()[0].name));
}

TEST_F(CudaBench, WhatDoesNotFitIsARowWithTheReason) {
  const std::string out = fine(
      "bench --device cuda --preset llama3-8b --tokens 50000000 --dtype bf16 --methods naive,fused "
      "--csv o.csv");
  EXPECT_TRUE(contains(out, "naive refused: ")) << out;
  EXPECT_EQ(count_lines("o.csv"), 3U);
}

TEST_F(CudaBench, ColumnsOfTheCpuAreAnotherFile) {
  fine("bench --device cpu n8_h4_v9 --no-rss --no-error --rounds 1 --csv cpu.csv");
  expect_refused("bench --device cuda n8_h4_v9 --csv cpu.csv --append", {"cpu.csv", "--append"});
}

}  // namespace
}  // namespace flce::test
