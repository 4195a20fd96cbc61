// SPDX-License-Identifier: Apache-2.0
// `flce verify`, `flce bench` and `flce train`: what they print, write and return.
#include <filesystem>
#include <nlohmann/json.hpp>
#include <sstream>

#include "cli_folder.hpp"

namespace flce::test {
namespace {

using Json = nlohmann::json;

class CliVerify : public Folder {};
class CliBench : public Folder {};

TEST_F(CliVerify, PassesForEveryTypeAndMethod) {
  for (const char* problem :
       {"n37_h65_v129 bf16 mean label_smoothing=0.1 softcap=30 method=fused",
        "n20_h9_v33 f64 none bias grad_bias upstream=per_token lse entropy topk=3 argmax",
        "n20_h9_v33 f16 sum normalizer=7 class_weight token_weight z_loss=0.01 z_loss_part",
        "n24_h9_v33 f32 mean shift=1 sequence_length=6 scale=0.5 temperature=per_token split",
        "n20_h9_v33 bf16 mean accumulate grad_weight=f32 upstream=scalar num_correct num_valid"}) {
    const std::string out = fine(std::string("verify \"") + problem + "\"");
    EXPECT_TRUE(contains(out, "PASS: problems 1")) << out;
    EXPECT_FALSE(contains(out, "MISS")) << out;
  }
}

TEST_F(CliVerify, EveryKindOfDataPasses) {
  for (const char* kind : {"random", "peaked", "confident", "common-mean"}) {
    for (const char* type : {"f32", "bf16"}) {
      fine(std::string("verify n40_h32_v100 mean bias grad_bias logprob chunk=16 ") + type +
           " --data " + kind + " --seed 3");
    }
  }
}

TEST_F(CliVerify, AMissIsExitCode1) {
  const Outcome outcome = flce("verify n37_h65_v129 f32 mean --limit-scale 0");
  EXPECT_EQ(outcome.exit_code, 1) << outcome.out << outcome.err;
  EXPECT_TRUE(contains(outcome.out, "MISS")) << outcome.out;
  EXPECT_EQ(outcome.err, "");
}

TEST_F(CliVerify, ShowsWhyAMethodRefusesAndCountsWhatNoneServes) {
  const std::string out = fine("verify n12_h4_v9 f32 none entropy grad_entropy");
  EXPECT_TRUE(contains(out, "fused      refused: ")) << out;
  EXPECT_TRUE(contains(out, "recompute  chunk")) << out;
  const Outcome none = flce("verify n12_h4_v9 f32 mean budget=100");
  EXPECT_EQ(none.exit_code, 1) << none.out;
  EXPECT_TRUE(contains(none.out, "the budget is 100 bytes")) << none.out;
  EXPECT_TRUE(contains(none.out, "served by no method 1")) << none.out;
}

TEST_F(CliVerify, ReadsFilesWithCommentsAndPrintsJson) {
  write_file("problems.txt",
             "# two problems\n\nn7_h3_v5 f32 mean # the first\n  n1_h1_v1 f64 sum\n");
  const Json json = Json::parse(fine("verify problems.txt --json"));
  EXPECT_EQ(json["pass"], true);
  ASSERT_EQ(json["problems"].size(), 2U);
  EXPECT_EQ(json["problems"][0]["methods"].size(), 4U);
  const Json& check = json["problems"][0]["methods"][0]["checks"]["grad_weight"];
  EXPECT_LE(check["error"].get<double>(), check["limit"].get<double>());
}

TEST_F(CliVerify, RefusesWhatItCannotRead) {
  expect_refused("verify", {"problem", "required"});
  expect_refused("verify n7_h3_v5 f32 meen", {"meen", "known"});
  expect_refused("verify f32 mean", {"sizes"});
  expect_refused("verify n7_h3_v5 --data odd", {"odd", "peaked"});
  expect_refused("verify n100000_h1000_v100000", {"too large", "flce bench"});
  write_file("empty.txt", "# nothing\n");
  expect_refused("verify empty.txt", {"empty.txt", "no problem"});
  write_file("wrong.txt", "n7_h3_v5\nn7_h3_v5 surprise\n");
  expect_refused("verify wrong.txt", {"wrong.txt, line 2: ", "surprise"});
  write_file("later.txt", "n7_h3_v5\n\nn7_h3_v5 shift=-1\n");
  expect_refused("verify later.txt", {"later.txt, line 3: shift is -1"});
  write_file("noise.txt", "\x1b[31mn7\x7f\n");
  expect_refused("verify noise.txt", {"noise.txt, line 1: the problem text ' [31mn7 '"});
  expect_refused("verify n7_h3_v5 sum normalizer=0", {"normalizer=0", "positive"});
}

std::vector<std::string> split(const std::string& text, char separator) {
  std::vector<std::string> parts;
  std::istringstream stream(text);
  for (std::string part; std::getline(stream, part, separator);) parts.push_back(part);
  return parts;
}

const char* const kBenchColumns[] = {
    "problem",         "method",          "chunk",       "num_chunks",      "tokens",
    "hidden",          "vocab",           "dtype",       "median_ms",       "min_ms",
    "max_ms",          "predicted_ms",    "gflops",      "share_of_peak",   "ratio_to_naive",
    "extra_bytes",     "peak_bytes",      "rss_bytes",   "predicted_bytes", "err_loss",
    "err_grad_hidden", "err_grad_weight", "peak_gflops", "cpu_model",       "isa",
    "threads",         "version",         "date"};

TEST_F(CliBench, WritesCsvJsonAndSvg) {
  const std::string out = fine(
      "bench --device cpu n64_h16_v500 f32 mean --methods "
      "naive,chunked,fused,recompute,naive-eager "
      "--chunks 1,2,4,64 --rounds 2 --csv o.csv --json o.json --svg m.svg --svg-time t.svg");
  EXPECT_TRUE(contains(out, "GFLOP/s")) << out;
  EXPECT_TRUE(contains(out, "measured peak")) << out;
  const std::vector<std::string> lines = split(read_file(path("o.csv")), '\n');
  ASSERT_EQ(lines.size(), 1U + 1 + 3 * 4 + 1) << read_file(path("o.csv"));
  const std::vector<std::string> columns = split(lines[0], ',');
  const Json rows = Json::parse(read_file(path("o.json")));
  ASSERT_EQ(rows.size(), 14U);
  EXPECT_EQ(rows[0].size(), columns.size());
  for (const char* column : kBenchColumns) {
    EXPECT_EQ(std::count(columns.begin(), columns.end(), column), 1) << column;
    EXPECT_TRUE(rows[0].contains(column)) << column;
  }
  for (const Json& row : rows) {
    EXPECT_EQ(row["extra_bytes"], row["predicted_bytes"]) << row;
    EXPECT_EQ(row["peak_bytes"], row["predicted_peak_bytes"]) << row;
    EXPECT_EQ(row["rounds"], 2);
    EXPECT_GT(row["min_ms"].get<double>(), 0.0);
    EXPECT_LE(row["min_ms"].get<double>(), row["max_ms"].get<double>());
    EXPECT_GT(row["predicted_ms"].get<double>(), 0.0);
    EXPECT_GT(row["share_of_peak"].get<double>(), 0.0);
    EXPECT_GT(row["rss_bytes"].get<std::int64_t>(), 0);
    EXPECT_LT(row["err_grad_weight"].get<double>(), 1e-5);
  }
  for (const char* name : {"m.svg", "t.svg"}) {
    const std::string svg = read_file(path(name));
    EXPECT_EQ(svg.rfind("<svg ", 0), 0U);
    EXPECT_TRUE(contains(svg, "prefers-color-scheme"));
    EXPECT_TRUE(contains(svg, "</svg>"));
  }
  EXPECT_TRUE(contains(read_file(path("m.svg")), "number of chunks"));
  EXPECT_TRUE(contains(read_file(path("t.svg")), "tokens of a chunk"));
}

TEST_F(CliBench, TakesSizesFromOptionsAndPrintsRows) {
  const Json rows =
      Json::parse(fine("bench --device cpu --tokens 40 --hidden 8 --vocab 300 --dtype bf16 "
                       "--methods fused,chunked-eager "
                       "--chunk-sizes 10,40,99 --rounds 1 --no-rss --json"));
  ASSERT_EQ(rows.size(), 4U);  // a chunk of 99 is one of 40
  for (const Json& row : rows) {
    EXPECT_EQ(row["tokens"], 40);
    EXPECT_EQ(row["dtype"], "bf16");
    EXPECT_EQ(row["chunk"].get<int>() * row["num_chunks"].get<int>(), 40);
    EXPECT_EQ(row["extra_bytes"], row["predicted_bytes"]) << row;
    EXPECT_TRUE(row["rss_bytes"].is_null());
    EXPECT_TRUE(row["ratio_to_naive"].is_null());
  }
  const std::string csv =
      fine("bench --device cpu n9_h4_v20 --rounds 1 --no-rss --no-error --methods fused --csv -");
  EXPECT_EQ(csv.rfind("problem,method,", 0), 0U) << csv;
  EXPECT_EQ(split(csv, '\n').size(), 2U) << csv;
}

TEST_F(CliBench, EagerVariantsWithOptionsArePredictedOnly) {
  const Json rows =
      Json::parse(fine("bench --device cpu n40_h8_v300 f32 softcap=5 --methods naive-eager "
                       "--rounds 1 --no-rss --json"));
  ASSERT_EQ(rows.size(), 1U);
  EXPECT_EQ(rows[0]["predicted_bytes"], 40 * 300 * 12);
  EXPECT_TRUE(rows[0]["median_ms"].is_null());
  EXPECT_TRUE(rows[0]["extra_bytes"].is_null());
}

TEST_F(CliBench, SamplesTokensOfLargeProblemsAndShowsRefusals) {
  const std::string out =
      fine("bench --device cpu n600_h32_v40000 bf16 mean --methods fused --rounds 1 --no-rss");
  EXPECT_TRUE(contains(out, "of 600 tokens")) << out;
  EXPECT_FALSE(contains(out, "600 of 600")) << out;
  const std::string refused = fine(
      "bench --device cpu n8_h4_v9 f32 none entropy grad_entropy --methods fused,recompute "
      "--rounds 1");
  EXPECT_TRUE(contains(refused, "fused refused: ")) << refused;
  const Outcome none =
      flce("bench --device cpu n8_h4_v9 f32 none entropy grad_entropy --methods fused --rounds 1");
  EXPECT_EQ(none.exit_code, 1) << none.out << none.err;
  EXPECT_TRUE(contains(none.out, "fused refused: ")) << none.out;
}

TEST_F(CliBench, RefusesWrongOptions) {
  expect_refused("bench n8_h4_v9 --methods magic", {"magic", "fused"});
  expect_refused("bench n8_h4_v9 --chunks 0", {"chunks"});
  expect_refused("bench n8_h4_v9 --rounds -1", {"rounds"});
  expect_refused("bench n8_h4", {"n8_h4"});
  expect_refused("bench n8_h4_v9 --tokens 7", {"--tokens 7", "8", "leave out"});
  expect_refused("bench n8_h4_v9 bf16 --dtype f32", {"--dtype f32", "bf16"});
  expect_refused("bench --chunks 2 --chunk-sizes 4", {"--chunks", "--chunk-sizes"});
  expect_refused("bench --json n8_h4_v9", {"--json n8_h4_v9", ".json"});
  expect_refused("bench n8_h4_v9 --csv - --json -", {"stdout"});
  expect_refused("bench n8_h4_v9 --device cpu --set sweep", {"--set", "cuda"});
  expect_refused("bench n8_h4_v9 --device cpu --warm-seconds 1", {"--warm-seconds", "--warmup"});
  expect_refused("bench n8_h4_v9 --device cpu --no-floor", {"--no-floor", "cuda"});
  expect_refused("bench n8_h4_v9 --set other", {"other", "headline", "sweep"});
  expect_refused("bench n8_h4_v9 --append", {"--append", "--csv FILE"});
  expect_refused("bench n8_h4_v9 --preset gpt2", {"--preset gpt2", "768", "leave out"});
  expect_refused("bench --preset gpt9", {"gpt9", "qwen3-8b"});
  write_file("other.csv", "a,b\n1,2\n");
  expect_refused("bench n8_h4_v9 --csv other.csv --append", {"other.csv", "'a,b'"});
  write_file("noise.csv", "\xff\x01" + std::string(100, 'x'));
  expect_refused("bench n8_h4_v9 --csv noise.csv --append", {"noise.csv", "'\\xff\\x01x"});
}

TEST_F(CliBench, AppendsRowsToAFile) {
  const std::string bench =
      "bench --device cpu n8_h4_v9 --no-rss --no-error --csv o.csv --rounds 1";
  fine(bench + " --append --methods fused");
  fine(bench + " --append --methods naive,chunked");
  const std::vector<std::string> lines = split(read_file(path("o.csv")), '\n');
  ASSERT_EQ(lines.size(), 4U);
  EXPECT_EQ(lines[0].rfind("problem,method,", 0), 0U);
  EXPECT_TRUE(contains(lines[1], ",fused,")) << lines[1];
  EXPECT_TRUE(contains(lines[3], ",chunked,")) << lines[3];
  fine(bench + " --methods naive");
  EXPECT_EQ(split(read_file(path("o.csv")), '\n').size(), 2U);
}

TEST_F(CliBench, ForwardIsTheLossAloneAndLigerAChunk) {
  const Json rows =
      Json::parse(fine("bench --device cpu n64_h8_v300 --methods naive,forward,fused-liger,chunked "
                       "--chunk-sizes 32 --rounds 1 --no-rss --json"));
  ASSERT_EQ(rows.size(), 4U);
  EXPECT_EQ(rows[1]["method"], "forward");
  EXPECT_EQ(rows[1]["gemms"], 1);
  EXPECT_EQ(rows[1]["extra_bytes"], rows[1]["predicted_bytes"]);
  EXPECT_EQ(rows[1]["peak_bytes"], rows[1]["predicted_peak_bytes"]);
  EXPECT_TRUE(rows[1]["err_grad_weight"].is_null());
  EXPECT_LT(rows[1]["err_loss"].get<double>(), 1e-5);
  EXPECT_EQ(rows[2]["method"], "fused-liger");
  EXPECT_EQ(rows[2]["chunk"], 2);  // next_pow2(64 / ceil(300 / 8))
}

TEST_F(CliBench, WithoutRoundsMemoryAndErrorsAreMeasured) {
  const Json rows = Json::parse(fine("bench --device cpu n8_h4_v9 --rounds 0 --no-rss --json"));
  ASSERT_EQ(rows.size(), 4U);
  EXPECT_TRUE(rows[2]["median_ms"].is_null());
  EXPECT_EQ(rows[2]["extra_bytes"], rows[2]["predicted_bytes"]);
  EXPECT_LT(rows[2]["err_grad_hidden"].get<double>(), 1e-5);
}

TEST_F(CliBench, APresetGivesTheSizes) {
  const Json rows = Json::parse(
      fine("bench --device cpu --preset smollm2-135m --tokens 2 --methods fused --rounds 1 "
           "--no-rss --no-error --json"));
  ASSERT_EQ(rows.size(), 1U);
  EXPECT_EQ(rows[0]["hidden"], 576);
  EXPECT_EQ(rows[0]["vocab"], 49152);
}

class CliTrain : public Folder {
 protected:
  CliTrain() {
    std::string text;
    for (int i = 0; i < 120; ++i) {
      text += "Ge1:" + std::to_string(i) + " the cat sat on the mat, and the dog sat on the log. ";
      text += "a bird's song number " + std::to_string(i % 7) + "!\n";
    }
    write_file("text.txt", text);
  }
  Json train(const std::string& options) const {
    return Json::parse(
        fine("train text.txt --json --batch 64 --embed 8 --hidden 16 --context 3 "
             "--steps 25 --eval-every 10 --warmup 5 " +
             options));
  }
  static double last_validation(const Json& json) { return json["points"].back()["valid_loss"]; }
};

TEST_F(CliTrain, TheLossFallsAndASeedRepeatsIt) {
  const Json first = train("--method naive");
  EXPECT_EQ(first["points"].size(), 4U);  // before, after 10, 20 and 25 steps
  EXPECT_NEAR(first["points"][0]["valid_loss"].get<double>(),
              std::log(first["vocab"].get<double>()), 0.3);
  EXPECT_LT(last_validation(first), 0.7 * first["points"][0]["valid_loss"].get<double>());
  EXPECT_EQ(first["used_bytes"], first["extra_bytes"]);
  const Json second = train("--method naive --threads 1");
  EXPECT_EQ(second["points"], first["points"]);
  EXPECT_NE(train("--method naive --seed 2")["points"], first["points"]);
}

TEST_F(CliTrain, MethodsAndTypesAgree) {
  const double naive = last_validation(train("--method naive"));
  for (const char* options : {"--method chunked --chunk 16", "--method fused --chunk 16",
                              "--method recompute --chunk 16"}) {
    EXPECT_NEAR(last_validation(train(options)), naive, 1e-3 * naive) << options;
  }
  for (const char* options : {"--dtype bf16", "--dtype f16"}) {
    EXPECT_NEAR(last_validation(train(options)), naive, 5e-2 * naive) << options;
  }
}

TEST_F(CliTrain, ReportsTheVocabularyAndSavesTheWeights) {
  const std::string out = fine(
      "train text.txt --vocab 10 --steps 2 --batch 16 --embed 4 --hidden 8 --context 2 "
      "--save model.safetensors");
  EXPECT_TRUE(contains(out, "verse labels removed")) << out;
  EXPECT_TRUE(contains(out, "vocab     10 with <unk>")) << out;
  EXPECT_TRUE(contains(out, "memory    of the loss step: predicted")) << out;
  const io::Safetensors file = io::read_safetensors(path("model.safetensors"));
  EXPECT_EQ(file.tensor("head").view.shape, (io::Shape{10, 8}));
  EXPECT_EQ(file.tensor("head_bias").view.shape, (io::Shape{10}));
  EXPECT_EQ(file.tensor("embed").view.shape, (io::Shape{10, 4}));
  EXPECT_EQ(file.tensor("linear").view.shape, (io::Shape{8, 8}));
  const Json words = Json::parse(file.metadata().at("vocab"));
  ASSERT_EQ(words.size(), 10U);
  EXPECT_EQ(words[0], "<unk>");
  EXPECT_EQ(words[1], "the");
  // The saved head is a weight that `flce run` takes.
  const io::Safetensors model = io::read_safetensors(path("model.safetensors"));
  io::TensorView weight = model.tensor("head").view;
  weight.name = "weight";
  const io::Tensor hidden = make_tensor("hidden", Dtype::kF32, {1, 8}, Numbers(8, 0.5));
  const io::Tensor target = make_tensor("target", Dtype::kI32, {1}, {3});
  const io::TensorView tensors[] = {hidden.view(), weight, target.view()};
  io::write_safetensors(path("in.safetensors"), tensors);
  fine("run --input in.safetensors --output out.safetensors");
}

TEST_F(CliTrain, DoesNotReplaceItsText) {
  std::filesystem::create_symlink("text.txt", path("link.txt"));
  const auto size = std::filesystem::file_size(path("text.txt"));
  for (const char* name : {"text.txt", "./text.txt", "link.txt"}) {
    expect_refused(std::string("train text.txt --steps 1 --save ") + name,
                   {"--save", "replace the input"});
    EXPECT_EQ(std::filesystem::file_size(path("text.txt")), size) << name;
  }
}

TEST_F(CliTrain, RefusesTextsThatItCannotUse) {
  write_file("empty.txt", "");
  write_file("tiny.txt", "four words are few");
  write_file("binary.txt", std::string("word \0 word", 11));
  expect_refused("train none.txt", {"none.txt", "No such file"});
  expect_refused("train empty.txt", {"empty.txt", "empty"});
  expect_refused("train tiny.txt", {"tiny.txt", "4 words", "at least"});
  expect_refused("train binary.txt", {"binary.txt", "binary"});
  expect_refused("train .", {"folder"});
  expect_refused("train text.txt --dtype f64", {"f64", "bf16"});
  expect_refused("train text.txt --vocab 1", {"vocab"});
  expect_refused("train text.txt --batch 0", {"batch"});
  expect_refused("train text.txt --method magic", {"magic"});
  expect_refused("train text.txt --demo --method fused", {"--demo"});
  expect_refused("train text.txt --budget 5 --steps 1", {"budget", "smallest"});
  expect_refused("train text.txt --steps 1 --save no/where.safetensors", {"no/where"});
}

TEST_F(CliTrain, HelpHasExamples) {
  for (const char* command : {"run", "verify", "bench", "train"}) {
    const std::string out = fine(std::string(command) + " --help");
    EXPECT_TRUE(contains(out, "Examples:")) << out;
    EXPECT_TRUE(contains(out, "--device")) << out;
  }
}

}  // namespace
}  // namespace flce::test
