// SPDX-License-Identifier: Apache-2.0
// The commands on a card: the same answers as on the CPU, through copies there and back. Runs on a
// real card (label gpu) and, where the build has no CUDA part, on pretended ones.
#include <cstdio>
#include <nlohmann/json.hpp>

#include "cli_folder.hpp"
#include "flce/device.hpp"

namespace flce::test {
namespace {

using Json = nlohmann::json;

class CliCuda : public Folder {
 protected:
  CliCuda() : Folder("") {}
  Json json(const std::string& args) const { return Json::parse(fine(args + " --json")); }

  // Four tokens, three classes, starting values for both gradients that can have them.
  void write_problem(const Numbers& target = {0, 1, -100, 2}) const {
    const Numbers hidden{0.5, -1, 2, 0.25, 1, 1, -0.75, 3};
    const Numbers weight{1, 0, -0.5, 2, 0.25, -1};
    std::vector<io::Tensor> tensors;
    const auto add = [&](const char* name, Dtype dtype, io::Shape shape, const Numbers& values) {
      tensors.push_back(make_tensor(name, dtype, std::move(shape), values));
    };
    add("hidden", Dtype::kF32, {4, 2}, hidden);
    add("weight", Dtype::kF32, {3, 2}, weight);
    add("target", Dtype::kI64, {4}, target);
    add("bias", Dtype::kF32, {3}, {0.1, 0, -0.2});
    add("class_weight", Dtype::kF32, {3}, {1, 2, 0.5});
    add("temperature", Dtype::kF32, {4}, {1, 0.5, 2, 1.5});
    add("grad_weight", Dtype::kF32, {3, 2}, {1, 2, 3, 4, 5, 6});
    add("grad_bias", Dtype::kF32, {3}, {-1, 0, 1});
    std::vector<io::TensorView> views;
    for (io::Tensor& tensor : tensors) views.push_back(tensor.view());
    io::write_safetensors(path("in.safetensors"), views);
  }
  void write_words() const {
    std::string text;
    for (int i = 0; i < 300; ++i) text += "one two three, four. ";
    write_file("text", text);
  }
};

TEST_F(CliCuda, AutoAndPlanTakeTheCardAtHand) {
  const Json plan = json("plan --tokens 512 --hidden 64 --vocab 4000 --dtype bf16");
  EXPECT_EQ(plan["device"]["kind"], "cuda");
  EXPECT_EQ(plan["device"]["at_hand"], true);
  EXPECT_EQ(plan["device"]["name"], cuda_caps(0).name.data());
  EXPECT_TRUE(plan["route"] == "portable" || plan["route"] == "hopper") << plan["route"];
  const Json portable = json("plan --tokens 512 --hidden 64 --vocab 4000 --route portable");
  EXPECT_EQ(portable["route"], "portable");
  const Json cpu = json("plan --tokens 512 --hidden 64 --vocab 4000 --device cpu");
  EXPECT_EQ(cpu["device"]["kind"], "cpu");
  expect_refused("plan --tokens 4 --hidden 8 --vocab 8 --device cuda:99", {"99"});
}

TEST_F(CliCuda, InfoListsEveryCard) {
  const Json info = json("info");
  const std::vector<CudaDevice> cards = cuda_devices();
  ASSERT_EQ(info["devices"].size(), 1 + cards.size());
  EXPECT_EQ(info["devices"][1]["name"], cards[0].name);
  EXPECT_EQ(info["devices"][1]["num_sms"], cards[0].num_sms);
  EXPECT_TRUE(info["cuda"]["refusal"].is_null());
  EXPECT_TRUE(contains(info["cuda"]["runtime_version"], "."));
  EXPECT_EQ(info["backends"][1]["runs"], true);
  EXPECT_EQ(info["cuda"]["kernels"], Json(cuda_kernels()));
  EXPECT_FALSE(cuda_kernels().empty());
  const std::string text = fine("info");
  for (const std::string& part :
       {std::string("cuda:0    "), cards[0].name, cuda_libraries().cublaslt_path}) {
    EXPECT_TRUE(contains(text, part)) << text;
  }
}

TEST_F(CliCuda, RunGivesTheCpusResults) {
  write_problem();
  const std::string run =
      "run --input in.safetensors --quiet --label-smoothing 0.1 "
      "--outputs lse,logprob,entropy,argmax,topk=2,z_loss,num_correct,num_valid ";
  fine(run + "--output cpu.safetensors --device cpu");
  const io::Safetensors want = io::read_safetensors(path("cpu.safetensors"));
  for (const char* method : {"naive", "chunked", "fused", "recompute"}) {
    fine(run + "--output card.safetensors --device cuda --method " + method);
    const io::Safetensors got = io::read_safetensors(path("card.safetensors"));
    ASSERT_EQ(got.entries().size(), want.entries().size());
    for (const io::SafetensorsEntry& entry : want.entries()) {
      expect_near(numbers_of(got.tensor(entry.name).view), numbers_of(want.tensor(entry.name).view),
                  1e-5, method + (" " + entry.name));
    }
  }
  EXPECT_EQ(json("run --input in.safetensors --output card.safetensors")["device"], "cuda");
}

TEST_F(CliCuda, ABadTargetIsAnErrorAndNothingIsWritten) {
  write_problem({0, 7, -100, 2});
  expect_refused("run --input in.safetensors --output out.safetensors --device cuda", {"7"});
}

TEST_F(CliCuda, VerifyPasses) {
  for (const char* text :
       {"n37_h65_v129 f32 mean label_smoothing=0.1 softcap=30 bias class_weight",
        "n37_h65_v129 bf16 sum accumulate grad_weight=f32 temperature=per_token token_weight=f32",
        "n12_h16_v33 f32 none upstream=per_token bias grad_bias accumulate lse entropy topk=3",
        "n12_h16_v33 f32 mean upstream=scalar split"}) {
    EXPECT_TRUE(contains(fine("verify '" + std::string(text) + "' --device cuda"), "PASS:"));
  }
}

TEST_F(CliCuda, TrainingHasTheCpusLosses) {
  write_words();
  const std::string train = "train text --steps 12 --batch 64 --hidden 16 --chunk 16 ";
  const Json card = json(train + "--device cuda");
  const Json cpu = json(train + "--device cpu");
  EXPECT_EQ(card["device"], "cuda");
  EXPECT_NEAR(card["last_loss"].get<double>(), cpu["last_loss"].get<double>(), 1e-3);
  EXPECT_LT(card["last_loss"].get<double>(), card["first_loss"].get<double>());
  EXPECT_EQ(card["used_bytes"], card["extra_bytes"]);
  EXPECT_TRUE(contains(fine(train + "--device cuda --dtype bf16 --threads 1"), "measured"));
}

TEST_F(CliCuda, TuneEndsWithRowsForTheTable) {
  const std::string text = fine("tune --tokens 256 --hidden 128 --vocab 512 --rounds 2");
  for (const std::string& part :
       {std::string("product"), std::string("to rank 0"), std::string("best"),
        std::string("of a copy's"),
        "    Choice{\"" + std::string(cuda_caps(0).name.data()) + "\", Product::kLogits, 256, "}) {
    EXPECT_TRUE(contains(text, part)) << text;
  }
}

TEST_F(CliCuda, TheSecondCardIsTakenWhereItIsAskedFor) {
  if (cuda_devices().size() < 2) GTEST_SKIP() << "there is one card";
  write_problem();
  fine("run --input in.safetensors --output out.safetensors --quiet --device cuda:1");
  EXPECT_TRUE(contains(fine("verify n12_h16_v33 --device cuda:1"), "PASS:"));
}

}  // namespace
}  // namespace flce::test

// Where there is no card the whole program is skipped.
int main(int argc, char** argv) {
  testing::InitGoogleTest(&argc, argv);
  if (!flce::has_cuda()) {
    std::printf("skipped: %s\n", flce::cuda_refusal().c_str());
    return 77;
  }
  return RUN_ALL_TESTS();
}
