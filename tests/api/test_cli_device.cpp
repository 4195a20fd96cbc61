// SPDX-License-Identifier: Apache-2.0
// --device, --route, --tf32 and `flce tune` where no card is seen: `auto` is the CPU, and whoever
// asks for a card is told why there is none. test_cuda_cli.cpp has what runs on one.
#include <nlohmann/json.hpp>

#include "cli_folder.hpp"
#include "flce/device.hpp"

namespace flce::test {
namespace {

using Json = nlohmann::json;

class CliDevice : public Folder {
 protected:
  Json json(const std::string& args) const { return Json::parse(fine(args + " --json")); }
};

constexpr const char* kPlan = "plan --tokens 512 --hidden 64 --vocab 4000 --dtype f32 ";

TEST_F(CliDevice, ACardThatIsNotThereIsRefusedWithTheReason) {
  write_file("text", "a few words");
  for (const std::string& command :
       {std::string("verify n4_h8_v9"), std::string("train text"), std::string(kPlan),
        std::string("tune --tokens 8 --hidden 8 --vocab 8"),
        std::string("run --input in.safetensors --output out.safetensors")}) {
    for (const char* device : {"cuda", "cuda:0", "cuda:1"}) {
      expect_refused(command + " --device " + device,
                     {"device '" + std::string(device) + "'", "CUDA", "device cpu works"});
    }
  }
  expect_refused(std::string(kPlan) + " --device cuda", {"--device-caps h200"});
  expect_refused("verify n4_h8_v9 --device cuda:x", {"cuda:x", "cuda:0"});
  expect_refused("verify n4_h8_v9 --device cuda --threads 2", {"--threads 2", "leave out one"});
}

TEST_F(CliDevice, AutoIsTheCpuWhereThereIsNoCard) {
  EXPECT_EQ(json(std::string(kPlan) + "--device auto")["device"]["kind"], "cpu");
  EXPECT_TRUE(json(kPlan)["route"].is_null());
  EXPECT_TRUE(contains(fine("verify n4_h8_v9 --device auto --ignored 0"), "PASS"));
  const Json info = json("info");
  EXPECT_EQ(info["devices"].size(), 1U);
  EXPECT_TRUE(contains(info["cuda"]["refusal"], "device cpu works"));
  EXPECT_EQ(info["backends"][1]["kind"], "cuda");
  EXPECT_EQ(info["backends"][1]["runs"], false);
  const std::string text = fine("info");
  EXPECT_TRUE(contains(text, "cuda      none: "));
  // A build with the CUDA part says which kernels it has, without a card, too.
  const bool has_part = !info["cuda"]["kernels"].empty();
  EXPECT_EQ(has_part, contains(text, "cuda      kernels of this build: portable")) << text;
  EXPECT_EQ(has_part, !cuda_kernels().empty());
}

TEST_F(CliDevice, RoutesAreShownAndRefusedWhereTheyMeanNothing) {
  const std::string card = std::string(kPlan) + "--device-caps h200 ";
  EXPECT_EQ(json(card)["route"], "portable");
  EXPECT_EQ(json(card)["tf32"], false);
  // Why not the other route, which the card has: f32, or a build without it.
  EXPECT_TRUE(contains(fine(card), "route    portable (hopper: "));
  EXPECT_FALSE(json(card)["route_reason"].is_null());
  EXPECT_TRUE(contains(fine(card + "--route portable"), "route    portable\n"));
  EXPECT_TRUE(json(card + "--route portable")["route_reason"].is_null());
  EXPECT_EQ(json(card + "--route portable --tf32")["tf32"], true);
  EXPECT_TRUE(contains(fine(card + "--tf32"), "route    portable, products in tf32 (hopper: "));
  EXPECT_FALSE(contains(fine(kPlan), "route "));
  // A card that is described, not named.
  EXPECT_EQ(json(std::string(kPlan) + "--device cuda --memory 80GiB")["route"], "portable");

  const std::string text = "plan 'n8_h8_v16 f32' --device-caps h200 ";
  expect_refused(text + "--tf32", {"problem text", "tf32"});
  EXPECT_EQ(json("plan 'n8_h8_v16 f32 tf32 route=portable' --device-caps h200")["tf32"], true);
  expect_refused(std::string(kPlan) + "--route portable", {"route portable", "CUDA"});
  expect_refused(std::string(kPlan) + "--tf32", {"tf32", "CUDA"});
  expect_refused(std::string(kPlan) + "--route hopper", {"route hopper", "CUDA"});
  expect_refused(std::string(kPlan) + "--route fast", {"fast", "auto, portable, hopper"});
  const Outcome hopper = flce(card + "--route hopper");
  EXPECT_EQ(hopper.exit_code, 2) << hopper.out;
  EXPECT_TRUE(contains(hopper.out, "fused refuses: route hopper: ")) << hopper.out;
  EXPECT_TRUE(contains(hopper.err, "route=portable works")) << hopper.err;
  expect_refused("plan --tokens 8 --hidden 8 --vocab 8 --dtype bf16 --tf32 --device-caps h200",
                 {"tf32", "f32", "bf16"});
  expect_refused("verify n4_h8_v9 tf32", {"tf32", "CUDA"});
}

TEST_F(CliDevice, RunAndTrainTakeTheRouteOptionsAndRefuseThemOnTheCpu) {
  const io::Tensor hidden = make_tensor("hidden", Dtype::kF32, {2, 1}, {1, 1});
  const io::Tensor weight = make_tensor("weight", Dtype::kF32, {2, 1}, {2, 0});
  const io::Tensor target = make_tensor("target", Dtype::kI64, {2}, {0, 1});
  const std::vector<io::TensorView> views{hidden.view(), weight.view(), target.view()};
  io::write_safetensors(path("in.safetensors"), views);
  const std::string run = "run --input in.safetensors --output out.safetensors ";
  expect_refused(run + "--tf32", {"tf32", "CUDA"});
  expect_refused(run + "--route portable", {"route portable", "CUDA"});
  expect_refused(run + "--route fast", {"fast", "portable"});
  EXPECT_EQ(json(run)["device"], "cpu");
  std::string text;
  for (int i = 0; i < 200; ++i) text += "one two three. ";
  write_file("text", text);
  expect_refused("train text --steps 1 --tf32", {"tf32", "CUDA"});
  EXPECT_EQ(json("train text --steps 1 --batch 16 --threads 1")["device"], "cpu");
}

TEST_F(CliDevice, TuneChecksItsArgumentsFirst) {
  EXPECT_TRUE(contains(fine("tune --help"), "choices.cpp"));
  expect_refused("tune --hidden 8 --vocab 8", {"--tokens"});
  expect_refused("tune --tokens 0 --hidden 8 --vocab 8", {"--tokens 0"});
  expect_refused("tune --tokens 8 --hidden 8 --vocab 8 --dtype f64", {"f64", "bf16"});
  expect_refused("tune --tokens 8 --hidden 8 --vocab 8 --rounds 0", {"--rounds"});
  expect_refused("tune --tokens 8 --hidden 8 --vocab 8 --device cpu", {"--device cpu"});
  expect_refused("tune --tokens 8 --hidden 8 --vocab 8", {"CUDA", "device cpu works"});
}

}  // namespace
}  // namespace flce::test
