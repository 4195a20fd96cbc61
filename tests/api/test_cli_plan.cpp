// SPDX-License-Identifier: Apache-2.0
// Runs the built command line: figures, keys, verdicts, exit codes, and what it says to bad input.
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <sstream>
#include <string>

namespace flce::test {
namespace {

using Json = nlohmann::json;

struct Outcome {
  int exit_code = -1;
  std::string out;
  std::string err;
};

std::string read_file(const std::filesystem::path& path) {
  std::ifstream file(path, std::ios::binary);
  std::ostringstream text;
  text << file.rdbuf();
  return text.str();
}

// Runs `flce ARGS` through the shell; stdout and stderr go to files, so neither is a terminal.
Outcome flce(const std::string& args, const std::string& environment = "") {
  std::string pattern = (std::filesystem::temp_directory_path() / "flce-cli-XXXXXX").string();
  if (mkdtemp(pattern.data()) == nullptr) throw std::runtime_error("no temporary folder");
  const std::filesystem::path folder = pattern;
  // No figures that somebody measured on this machine, and no card of it.
  const std::string no_cache = "CUDA_VISIBLE_DEVICES= XDG_CACHE_HOME='" + folder.string() + "' ";
  const std::string command = no_cache + environment + " '" + FLCE_CLI + "' " + args + " >'" +
                              (folder / "out").string() + "' 2>'" + (folder / "err").string() + "'";
  const int status = std::system(command.c_str());
  Outcome outcome{WIFEXITED(status) ? WEXITSTATUS(status) : -1, read_file(folder / "out"),
                  read_file(folder / "err")};
  std::filesystem::remove_all(folder);
  return outcome;
}

Json plan_json(const std::string& args) {
  const Outcome outcome = flce("plan --json " + args);
  EXPECT_EQ(outcome.exit_code, 0) << args << '\n' << outcome.err;
  EXPECT_EQ(outcome.err, "");
  return Json::parse(outcome.out);
}

Json method_of(const Json& plan, const std::string& name) {
  for (const Json& method : plan["methods"]) {
    if (method["name"] == name) return method;
  }
  ADD_FAILURE() << "no method " << name;
  return {};
}

bool contains(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos;
}

// Exit code 2, nothing on stdout, one line on stderr that holds each part.
void expect_refused(const std::string& args, std::initializer_list<const char*> parts) {
  const Outcome outcome = flce(args);
  EXPECT_EQ(outcome.exit_code, 2) << args << '\n' << outcome.out << outcome.err;
  EXPECT_EQ(outcome.err.rfind("flce: error: ", 0), 0u) << args << '\n' << outcome.err;
  EXPECT_EQ(std::count(outcome.err.begin(), outcome.err.end(), '\n'), 1) << outcome.err;
  for (const char* part : parts)
    EXPECT_TRUE(contains(outcome.err, part)) << args << '\n' << outcome.err;
}

constexpr const char* kLlama = "--hidden 4096 --vocab 128256 --dtype bf16 ";

TEST(CliPlan, JsonHasTheKeysOfTheIssue) {
  const Json plan = plan_json(std::string(kLlama) + "--tokens 16384");
  EXPECT_EQ(plan["tokens"], 16384);
  EXPECT_EQ(plan["hidden"], 4096);
  EXPECT_EQ(plan["vocab"], 128256);
  EXPECT_EQ(plan["dtype"], "bf16");
  EXPECT_EQ(plan["hidden_bytes"], 134217728);
  EXPECT_EQ(plan["weight_bytes"], 1050673152);
  EXPECT_EQ(plan["logits_bytes"], 4202692608);
  EXPECT_EQ(plan["chosen"], "fused");
  EXPECT_TRUE(plan["verdict"]["pays"].is_boolean());
  EXPECT_TRUE(plan["verdict"]["reason"].is_string());
  EXPECT_EQ(plan["methods"].size(), 6u);
  for (const Json& method : plan["methods"]) {
    for (const char* key : {"name", "extra_bytes", "peak_bytes", "gemms", "chunk", "refused"}) {
      EXPECT_TRUE(method.contains(key)) << key;
    }
    EXPECT_TRUE(method["refused"].is_null());
    EXPECT_EQ(method["peak_bytes"], plan["input_bytes"].get<std::uint64_t>() +
                                        plan["output_bytes"].get<std::uint64_t>() +
                                        method["extra_bytes"].get<std::uint64_t>());
  }
  EXPECT_EQ(method_of(plan, "naive")["gemms"], 3);
  EXPECT_EQ(method_of(plan, "recompute")["gemms"], 4);
}

// Published figures (bench/published.py).
TEST(CliPlan, PublishedFigures) {
  const Json qwen = plan_json("--preset qwen3-8b --sequences 4 --sequence-length 4096");
  EXPECT_EQ(qwen["hidden_bytes"], 134217728);   // 0.13 GB
  EXPECT_EQ(qwen["logits_bytes"], 4978638848);  // 4.98e9, 37 times hidden
  EXPECT_EQ(qwen["chunk_rule"]["liger"]["inc"], 38);
  EXPECT_EQ(plan_json("--preset qwen3-8b --tokens 131072")["logits_bytes"], 39829110784);
  const Json llama = plan_json("--preset llama3-8b --tokens 65536");
  EXPECT_EQ(llama["logits_bytes"], 16810770432);  // 16.8 GB in bf16
  EXPECT_EQ(llama["chunk_rule"]["liger"]["inc"], 32);
  EXPECT_EQ(plan_json("--preset llama3-8b --tokens 65536 --dtype f32")["logits_bytes"],
            33621540864);  // 33.6 GB in f32
  EXPECT_EQ(plan_json("--preset llama3-8b --tokens 81920")["logits_bytes"], 21013463040);
  EXPECT_NEAR(21013463040.0 / (1 << 30), 19.57, 0.005);
  const Json eager = method_of(plan_json("--preset llama3-8b --tokens 16384"), "naive-eager");
  EXPECT_EQ(eager["extra_bytes"], 16384ull * 128256 * 16);
  EXPECT_NEAR(eager["peak_bytes"].get<double>() / 1e9, 35.99, 0.005);
}

TEST(CliPlan, TheRuleBalancesLogitsAndHidden) {
  const Json plan = plan_json("--preset llama3-8b --tokens 16384 --policy liger");
  EXPECT_EQ(plan["chunk"], 512);
  const Json& cost = plan["chunk_rule"]["costs"][0];
  EXPECT_EQ(cost["num_chunks"], 32);
  EXPECT_EQ(cost["gemm_calls"], 96);
  EXPECT_NEAR(cost["logits_over_hidden"].get<double>(), 1.0, 0.05);
}

TEST(CliPlan, BudgetIsALimit) {
  const Json plan = plan_json(std::string(kLlama) + "--tokens 16384 --budget 1500MB");
  EXPECT_LE(method_of(plan, "fused")["extra_bytes"].get<std::uint64_t>(), 1'500'000'000u);
  EXPECT_TRUE(method_of(plan, "naive")["refused"].is_string());
  const Outcome small = flce("plan " + std::string(kLlama) + "--tokens 16384 --budget 1kB");
  EXPECT_EQ(small.exit_code, 2);
  EXPECT_TRUE(contains(small.err, "the smallest budget that works is ")) << small.err;
  EXPECT_TRUE(contains(small.out, "fused refuses: ")) << small.out;
  const std::string named = "the smallest budget that works is ";
  const std::size_t at = small.err.find(named) + named.size();
  const std::uint64_t bytes = std::strtoull(small.err.c_str() + at, nullptr, 10);
  const std::string same = "plan " + std::string(kLlama) + "--tokens 16384 --budget ";
  EXPECT_EQ(flce(same + std::to_string(bytes)).exit_code, 0);
  EXPECT_EQ(flce(same + std::to_string(bytes - 1)).exit_code, 2);
}

TEST(CliPlan, CardsThatAreNotAtHand) {
  const Json h200 = plan_json("--preset llama3-8b --tokens 16384 --device-caps h200");
  EXPECT_EQ(h200["device"]["kind"], "cuda");
  EXPECT_EQ(h200["device"]["at_hand"], false);
  const Json a100 = plan_json("--preset llama3-8b --tokens 16384 --device-caps a100-80");
  for (const char* method : {"naive", "chunked", "fused", "recompute", "naive-eager"}) {
    EXPECT_LT(a100["largest_tokens"][method].get<std::int64_t>(),
              h200["largest_tokens"][method].get<std::int64_t>());
  }
  EXPECT_LT(a100["largest_tokens"]["naive"].get<std::int64_t>(),
            a100["largest_tokens"]["fused"].get<std::int64_t>());
  const Json memory = plan_json("--preset llama3-8b --tokens 16384 --memory 80GiB");
  EXPECT_EQ(memory["device"]["memory_bytes"], 85899345920);
  EXPECT_GT(memory["largest_tokens"]["naive"].get<std::int64_t>(),
            a100["largest_tokens"]["naive"].get<std::int64_t>());
}

TEST(CliPlan, TheVerdictDiffers) {
  const auto verdict = [](const std::string& args) { return plan_json(args)["verdict"]; };
  const Json fits = verdict("--preset smollm2-135m --tokens 2048 --device-caps a100-80");
  EXPECT_EQ(fits["pays"], false) << fits;
  EXPECT_TRUE(contains(fits["reason"], "anyway")) << fits;
  const Json loss =
      verdict("--preset gemma2-2b --tokens 40960 --device-caps a100-80 --checkpointing");
  EXPECT_EQ(loss["pays"], true) << loss;
  EXPECT_TRUE(contains(loss["reason"], "the loss is the cause")) << loss;
  const Json activations =
      verdict("--preset llama3-8b --tokens 16384 --device-caps a100-80 --shards 8");
  EXPECT_EQ(activations["pays"], false) << activations;
  EXPECT_TRUE(contains(activations["reason"], "activations")) << activations;
  const Json infer = verdict("--preset llama3-8b --tokens 16384 --mode infer");
  EXPECT_EQ(infer["pays"], false) << infer;
  EXPECT_TRUE(contains(infer["reason"], "one token for each sequence")) << infer;
  const Json head = verdict(std::string(kLlama) + "--tokens 16384");
  EXPECT_TRUE(contains(head["reason"], "model is unknown")) << head;
}

class CliPlanConfig : public testing::Test {
 protected:
  void SetUp() override {
    std::string pattern = (std::filesystem::temp_directory_path() / "flce-config-XXXXXX").string();
    ASSERT_NE(mkdtemp(pattern.data()), nullptr);
    folder_ = pattern;
  }
  void TearDown() override { std::filesystem::remove_all(folder_); }
  std::string config(const std::string& text) {
    const std::filesystem::path path = folder_ / "config.json";
    std::ofstream(path) << text;
    return "'" + path.string() + "'";
  }
  std::filesystem::path folder_;
};

TEST_F(CliPlanConfig, GivesTheStepsMemory) {
  const std::string path = config(R"({"model_type": "llama", "hidden_size": 4096,
    "vocab_size": 128256, "num_hidden_layers": 32, "num_attention_heads": 32,
    "num_key_value_heads": 8, "intermediate_size": 14336, "tie_word_embeddings": false,
    "torch_dtype": "bfloat16"})");
  const Json plan = plan_json("--tokens 8192 --config " + path);
  EXPECT_EQ(plan["vocab"], 128256);
  EXPECT_EQ(plan["step"]["parameters"], 8030261248);
  const Json preset = plan_json("--tokens 8192 --preset llama3-8b");
  EXPECT_EQ(plan["step"]["terms"], preset["step"]["terms"]);
  EXPECT_EQ(plan["verdict"]["saved_share"], preset["verdict"]["saved_share"]);
  EXPECT_EQ(plan["verdict"]["eager"]["pays"], false);
  EXPECT_EQ(plan_json("--tokens 16384 --config " + path)["verdict"]["eager"]["pays"], true);
  EXPECT_GT(plan["verdict"]["eager"]["step_bytes"], plan["verdict"]["step_bytes"]);
  bool activations = false;
  for (const Json& term : plan["step"]["terms"]) {
    EXPECT_FALSE(term["formula"].get<std::string>().empty());
    if (term["name"] == "activations") activations = true;
  }
  EXPECT_TRUE(activations);
  const Outcome text = flce("plan --tokens 8192 --config " + path);
  EXPECT_EQ(text.exit_code, 0);
  EXPECT_TRUE(contains(text.out, "N*L*(2 bytes * (4H + 2*d*(a+k) + 4*I) + 4a)")) << text.out;
}

TEST_F(CliPlanConfig, WithoutLayersIsJudgedByTheHead) {
  const std::string path = config(R"({"hidden_size": 4096, "vocab_size": 128256})");
  const Json plan = plan_json("--tokens 16384 --config " + path);
  EXPECT_FALSE(plan.contains("step"));
  EXPECT_TRUE(contains(plan["verdict"]["reason"], "model is unknown"));
  EXPECT_TRUE(contains(flce("plan --tokens 16384 --config " + path).out, "num_hidden_layers"));
}

TEST_F(CliPlanConfig, WithoutTheFieldsIsRefusedByName) {
  expect_refused("plan --tokens 4 --config " + config(R"({"hidden_size": 4096})"), {"vocab_size"});
  expect_refused("plan --tokens 4 --config " + config("{"), {"config.json"});
  expect_refused("plan --tokens 4 --config /does/not/exist.json", {"/does/not/exist.json"});
}

TEST(CliPlan, WrongCombinationsAreRefusedWithASentence) {
  expect_refused("plan", {"--tokens"});
  expect_refused("plan --tokens 4", {"--hidden", "--preset"});
  expect_refused("plan --tokens 4 --hidden 8", {"--vocab"});
  expect_refused("plan --tokens 4 --preset llama9", {"llama9", "llama3-8b"});
  expect_refused("plan --tokens 4 --preset gpt2 --config x", {"--preset", "--config"});
  expect_refused("plan --tokens 4 --preset gpt2 --vocab 5", {"--vocab 5", "50257"});
  expect_refused("plan --sequences 4 --preset gpt2", {"--sequence-length"});
  expect_refused("plan --tokens 5 --sequences 2 --sequence-length 4 --preset gpt2", {"8"});
  expect_refused("plan --tokens 4 --preset gpt2 --chunk 0", {"--chunk 0"});
  expect_refused("plan --tokens 4 --preset gpt2 --chunk -3", {"--chunk -3"});
  expect_refused("plan --tokens 4 --preset gpt2 --chunk 2 --method naive", {"naive"});
  expect_refused("plan --tokens 4 --preset gpt2 --chunk 2 --policy liger", {"--policy"});
  expect_refused("plan --tokens 4 --preset gpt2 --budget 2potatoes", {"potatoes", "2GiB"});
  expect_refused("plan --tokens 4 --preset gpt2 --budget 0", {"0 bytes"});
  expect_refused("plan --tokens 4 --preset gpt2 --method magic", {"magic", "fused"});
  expect_refused("plan --tokens 4 --preset gpt2 --dtype f8",
                 {"'f8'; known: f64, f32, bf16, f16\n"});
  expect_refused("plan --tokens 4 --preset gpt2 --grad-weight i64", {"'i64'; known: f64, f32"});
  expect_refused("plan --tokens 4 --preset gpt2 --mode dream", {"dream"});
  expect_refused("plan --tokens 4 --preset gpt2 --device tpu", {"tpu", "cpu"});
  expect_refused("plan --tokens 4 --preset gpt2 --device cuda:x", {"cuda:x"});
  expect_refused("plan --tokens 4 --preset gpt2 --device-caps h300", {"h300", "h200"});
  expect_refused("plan --tokens 4 --preset gpt2 --device cpu --device-caps h200", {"--device cpu"});
  expect_refused("plan --tokens 4 --hidden 8 --vocab 8 --checkpointing", {"--preset"});
  expect_refused("plan --tokens 4 --preset gpt2 --mode infer --shards 2", {"--mode infer"});
  expect_refused("plan --tokens 4 --preset gpt2 --shards 0", {"--shards 0"});
  expect_refused("plan --tokens -4 --preset gpt2", {"-4"});
  expect_refused("plan --tokens 4 --hidden 0 --vocab 8", {"hidden"});
  expect_refused("plan --tokens 4 --hidden 8 --vocab -8", {"-8"});
  expect_refused("plan --tokens 99999999999999999999 --preset gpt2", {"--tokens", "64 bits"});
  expect_refused("plan --tokens 1e3 --preset gpt2", {"--tokens", "1e3"});
  expect_refused("plan --tokens many --preset gpt2", {"many"});
  expect_refused("plan --tokens 4 --preset gpt2 --no-such-option", {"no-such-option"});
  expect_refused("plan 'n4_h8_v9 bf16 mean' --tokens 4", {"problem text"});
  expect_refused("plan 'n4_h8_v9 bf16 meen'", {"meen"});
}

TEST(CliPlan, TakesAProblemText) {
  const Json plan = plan_json("'n4096_h64_v5000 bf16 mean method=recompute chunk=128'");
  EXPECT_EQ(plan["chosen"], "recompute");
  EXPECT_EQ(plan["chunk"], 128);
}

TEST(CliPlan, HugeAndEmptySizes) {
  const Json huge = plan_json("--tokens 1000000000 --hidden 8192 --vocab 10000000 --dtype bf16");
  EXPECT_EQ(huge["logits_bytes"], 20'000'000'000'000'000u);
  EXPECT_EQ(method_of(huge, "naive-eager")["extra_bytes"], 160'000'000'000'000'000u);
  EXPECT_EQ(plan_json("--tokens 0 --preset gpt2")["chosen"], "fused");
  // Figures that nobody could read are no answer.
  for (const char* form : {"", " --json", " --device-caps h200"}) {
    const std::string args =
        "plan --tokens 1000000000000 --hidden 1000000000000 --vocab 1000000000000";
    expect_refused(args + form, {"n1000000000000_h1000000000000_v1000000000000", "64 bits"});
    EXPECT_EQ(flce(args + form).out, "") << form;
  }
}

TEST(CliPlan, TheTextShowsTableVerdictAndChecklist) {
  const Outcome outcome = flce("plan --preset llama3-8b --tokens 16384 --device-caps h200");
  EXPECT_EQ(outcome.exit_code, 0);
  EXPECT_EQ(outcome.err, "");
  for (const char* part :
       {"hidden   134.22 MB", "weight   1.05 GB", "logits   4.20 GB in bf16", "31.3 x hidden",
        "fused *", "naive-eager", "published rule: inc 32, chunk 512", "Does fusing pay?",
        "check in this order", "  1. Does the trace end at the loss", "  6. Only then",
        "Largest N"}) {
    EXPECT_TRUE(contains(outcome.out, part)) << part << '\n' << outcome.out;
  }
  std::istringstream lines(outcome.out);
  for (std::string line; std::getline(lines, line);) EXPECT_LE(line.size(), 110u) << line;
}

// Each command of the list is pasted as it stands, and answers with the figures that it stands for.
TEST(CliPlan, WhatTakesLessCanBePasted) {
  for (const char* args :
       {"--preset llama3-8b --tokens 16384 --device-caps h200",
        "--preset llama3-8b --tokens 16384 --device-caps h200 --policy liger --checkpointing",
        "--preset gemma2-2b --sequences 4 --sequence-length 1000 --memory 24GiB --chunk 3000",
        "--hidden 512 --vocab 32000 --tokens 4097 --dtype f32 --device cpu --method naive",
        "--hidden 512 --vocab 32000 --tokens 4096 --dtype f32 --device-caps a100-80 --tf32",
        "'n4096_h1024_v50257 f16 sum softcap=30 bias=f32 method=chunked' --device-caps a100-80",
        "'n4096_h1024_v50257 bf16 none upstream=per_token budget=300MB' --memory 8GB"}) {
    const Json plan = plan_json(args);
    EXPECT_FALSE(plan["offers"].empty()) << args;
    std::uint64_t before = method_of(plan, plan["chosen"])["extra_bytes"];
    const std::string text = flce("plan " + std::string(args)).out;
    for (const Json& offer : plan["offers"]) {
      const std::string command = offer["command"];
      EXPECT_TRUE(contains(text, "\n  " + command + "\n")) << command << '\n' << text;
      ASSERT_EQ(command.rfind("flce plan ", 0), 0u) << command;
      const Json then = plan_json(command.substr(std::string("flce plan ").size()));
      EXPECT_EQ(then["chosen"], offer["method"]) << command;
      EXPECT_EQ(then["chunk"], offer["chunk"]) << command;
      const std::uint64_t extra = method_of(then, then["chosen"])["extra_bytes"];
      EXPECT_EQ(extra, offer["extra_bytes"]) << command;
      EXPECT_LT(extra, before) << command;
      EXPECT_EQ(then.contains("step"), plan.contains("step")) << command;
      before = extra;
    }
  }
}

TEST(CliPlan, APathInACommandIsQuoted) {
  const std::string folder = std::filesystem::temp_directory_path() / "flce it's a folder";
  std::filesystem::create_directories(folder);
  std::ofstream(folder + "/config.json") << R"({"hidden_size": 512, "vocab_size": 32000})";
  const Json plan = plan_json("--tokens 4096 --device cpu --config \"" + folder + "\"");
  const std::string command = plan["offers"][0]["command"];
  EXPECT_EQ(plan_json(command.substr(std::string("flce plan ").size()))["chosen"],
            plan["offers"][0]["method"]);
  std::filesystem::remove_all(folder);
}

TEST(CliPlan, HelpVersionAndInfo) {
  for (const char* args : {"--help", "plan --help", "info --help"}) {
    const Outcome outcome = flce(args);
    EXPECT_EQ(outcome.exit_code, 0) << args;
    EXPECT_TRUE(contains(outcome.out, "Examples:")) << args << outcome.out;
  }
  const Outcome version = flce("--version");
  EXPECT_EQ(version.exit_code, 0);
  EXPECT_TRUE(contains(version.out, "flce 0.")) << version.out;
  EXPECT_EQ(flce("").exit_code, 2);
  EXPECT_EQ(flce("dance").exit_code, 2);
  const Outcome info = flce("info --json", "FLCE_NUM_THREADS=1");
  EXPECT_EQ(info.exit_code, 0) << info.err;
  const Json json = Json::parse(info.out);
  EXPECT_EQ(json["devices"][0]["kind"], "cpu");
  EXPECT_EQ(json["devices"][0]["num_threads"], 1);
}

TEST(CliPlan, AFullDiskIsAnError) {
  const Outcome outcome = flce("plan --tokens 4 --preset gpt2 --json >/dev/full 2>/dev/null #");
  EXPECT_EQ(outcome.exit_code, 2);
}

}  // namespace
}  // namespace flce::test
