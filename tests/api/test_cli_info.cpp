// SPDX-License-Identifier: Apache-2.0
// `flce info --calibrate`: the figures of this machine, kept in a file that plans read and that may
// be missing, broken or of another machine.
#include <nlohmann/json.hpp>

#include "cli_folder.hpp"

namespace flce::test {
namespace {

using Json = nlohmann::json;

class CliInfo : public Folder {
 protected:
  Json device() const { return Json::parse(fine("info --json"))["devices"][0]; }
  // Seconds of the fused step by the plan; null where the figures are unknown.
  Json planned_seconds(const std::string& options = "") const {
    const Json plan = Json::parse(
        fine("plan --tokens 512 --hidden 64 --vocab 4000 --dtype f32 --json " + options));
    for (const Json& method : plan["methods"]) {
      if (method["name"] == "fused") return method["seconds"];
    }
    return "no fused method";
  }
  void write_cache(const std::string& text) const {
    std::filesystem::create_directories(cache_file().parent_path());
    std::ofstream(cache_file()) << text;
  }
};

TEST_F(CliInfo, CalibratesOnceAndPlansWithIt) {
  EXPECT_TRUE(device()["matmul_flops"].is_null());
  EXPECT_TRUE(contains(fine("info"), "not measured"));
  EXPECT_TRUE(planned_seconds().is_null());
  EXPECT_FALSE(std::filesystem::exists(cache_file()));

  EXPECT_TRUE(contains(fine("info --calibrate"), "GB/s from memory"));
  const Json cpu = device();
  for (const char* dtype : {"f64", "f32", "bf16", "f16"}) {
    EXPECT_GT(cpu["matmul_flops"][dtype].get<double>(), 1e8) << dtype;
  }
  EXPECT_GT(cpu["bandwidth_bytes"].get<double>(), 1e8);
  EXPECT_GT(planned_seconds().get<double>(), 0.0);
  EXPECT_TRUE(contains(fine("plan --tokens 512 --hidden 64 --vocab 4000"), "ms"));

  // What others measured stays.
  Json file = Json::parse(read_file(cache_file()));
  file["machines"][0]["cpu_model"] = "another";
  write_cache(file.dump());
  EXPECT_TRUE(device()["matmul_flops"].is_null());
  fine("info --calibrate");
  EXPECT_EQ(Json::parse(read_file(cache_file()))["machines"].size(), 2U);
  fine("info --calibrate --json");
  EXPECT_EQ(Json::parse(read_file(cache_file()))["machines"].size(), 2U);
  EXPECT_FALSE(device()["matmul_flops"].is_null());
}

TEST_F(CliInfo, AWrongCommandIsNamedBesideTheKnownOnes) {
  const std::string known = "plan, run, verify, bench, train, tune, info (see flce --help)";
  expect_refused("nonsense", {"unknown command 'nonsense'; known commands: " + known});
  expect_refused("--nonsense", {"unknown option '--nonsense'; known commands: " + known});
  expect_refused("", {"no command was given; known: " + known});
}

TEST_F(CliInfo, IgnoresAFileThatItCannotUse) {
  fine("info --calibrate");
  const std::string good = read_file(cache_file());
  const auto changed = [&](auto change) {
    Json json = Json::parse(good);
    change(json["machines"][0]);
    return json.dump();
  };
  for (const std::string& text :
       {std::string(), std::string("{"), std::string("[]"), std::string("{\"format\": 2}"),
        std::string("{\"format\": 1, \"machines\": 5}"), good.substr(0, good.size() / 2),
        std::string(2 << 20, ' '), changed([](Json& entry) { entry = 7; }),
        changed([](Json& entry) { entry["threads"] = 1000; }),
        changed([](Json& entry) { entry["matmul_flops"] = "fast"; }),
        changed([](Json& entry) { entry["matmul_flops"]["f32"] = -1.0; }),
        changed([](Json& entry) { entry["bandwidth_bytes"] = nullptr; })}) {
    write_cache(text);
    const std::string out = fine("info");
    EXPECT_TRUE(contains(out, "flce info --calibrate")) << out << text;
    EXPECT_TRUE(planned_seconds().is_null()) << text;
    EXPECT_EQ(read_file(cache_file()), text);
  }
  fine("info --calibrate");
  EXPECT_FALSE(device()["matmul_flops"].is_null());
}

TEST_F(CliInfo, SaysWhereItCannotWrite) {
  std::filesystem::create_directories(cache_file().parent_path().parent_path());
  std::ofstream(cache_file().parent_path()) << "a file where the folder should be";
  expect_refused("info --calibrate", {"cpu.json"});
  EXPECT_TRUE(contains(fine("info"), "not measured"));
}

}  // namespace
}  // namespace flce::test
