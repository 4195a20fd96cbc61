// SPDX-License-Identifier: Apache-2.0
// The command line, with requests for memory or a thread refused from main on (walk_main.cpp): it
// ends with one line on stderr or does without, and what it writes is there whole or not at all.
// Every request of a command, but of those that set up any command only some; SCARCE_SETUP=1 and
// SCARCE_EVERY=1 in the environment: each. The CUDA part is not loaded: NVIDIA's library takes no
// care of memory when it is.
#include <ostream>
#include <sstream>

#include "api/cli_folder.hpp"

namespace flce::test {
namespace {

struct Walk {
  const char* name;
  const char* args;
  const char* output;  // what the command writes, below the folder in which it runs
  bool varies;         // times differ from run to run
  int every;
};

void PrintTo(const Walk& walk, std::ostream* out) { *out << walk.args; }

constexpr Walk kWalks[] = {
    {"run", "run --device cpu --input in.safetensors --output out/o.safetensors --outputs topk=2",
     "out/o.safetensors", false, 1},
    {"run_npy", "run --device cpu --hidden h.npy --weight w.npy --target y.npy --output out",
     "out/loss.npy", false, 1},
    {"plan", "plan --device cpu --preset llama3-8b --tokens 4096", "out/none", false, 1},
    {"plan_json", "plan --device cpu --config config.json --tokens 64 --json", "out/none", false,
     3},
    {"verify", "verify --device cpu n7_h5_v11 f32 mean split --json", "out/none", false, 3},
    {"bench",
     "bench --device cpu n8_h4_v9 f32 softcap=5 --methods naive-eager --csv out/o.csv --json "
     "j.json",
     "out/o.csv", true, 1},
    // Each run measures the processor, which takes a good part of a second.
    {"bench_measured",
     "bench --device cpu n8_h4_v9 f32 --rounds 1 --methods naive,fused --csv out/o.csv",
     "out/o.csv", true, 301},
    {"train",
     "train text.txt --device cpu --steps 2 --batch 16 --embed 4 --hidden 8 --context 2 "
     "--eval-every 0 --save out/model.safetensors",
     "out/model.safetensors", false, 1},
};

class ScarceCli : public Folder, public testing::WithParamInterface<std::tuple<Walk, const char*>> {
 protected:
  ScarceCli() : Folder(environment()) {
    std::filesystem::create_directory(path("out"));
    const io::Tensor hidden = make_tensor("hidden", Dtype::kF32, {3, 2}, {1, 2, -1, 0.5, 0, 1});
    const io::Tensor weight =
        make_tensor("weight", Dtype::kF32, {4, 2}, {1, 0, 0, 1, 0.5, -1, -2, 1});
    const io::Tensor target = make_tensor("target", Dtype::kI64, {3}, {2, 0, 3});
    const io::TensorView tensors[] = {hidden.view(), weight.view(), target.view()};
    io::write_safetensors(path("in.safetensors"), tensors);
    io::write_npy(path("h.npy"), hidden.view());
    io::write_npy(path("w.npy"), weight.view());
    io::write_npy(path("y.npy"), target.view());
    std::string text;
    for (int i = 0; i < 40; ++i) text += "the cat sat on the mat, and the dog on the log. ";
    write_file("text.txt", text);
    write_file("config.json", R"({"architectures": ["LlamaForCausalLM"], "hidden_size": 2048,
      "vocab_size": 128256, "num_hidden_layers": 16, "intermediate_size": 8192,
      "num_attention_heads": 32, "num_key_value_heads": 8, "torch_dtype": "bfloat16"})");
  }

  static std::string environment() {
    const auto& [walk, mode] = GetParam();
    return std::string("CUDA_VISIBLE_DEVICES= FLCE_NUM_THREADS=3 LD_PRELOAD='" FLCE_SCARCE
                       "' SCARCE_REPORT=../report SCARCE_WALK=") +
           mode + " SCARCE_OUTPUT=" + walk.output + " SCARCE_VARIES=" + (walk.varies ? "1" : "0") +
           " SCARCE_EVERY=${SCARCE_EVERY:-" +
           std::to_string(std::string(mode) == "kill" ? 1 + walk.every / 100 : walk.every) +
           "} SCARCE_SETUP=${SCARCE_SETUP:-61} ";
  }
};

TEST_P(ScarceCli, EndsWithOneLineAndWholeFiles) {
  const Outcome outcome = flce(std::get<0>(GetParam()).args);
  ASSERT_EQ(outcome.exit_code, 0) << outcome.err;
  std::istringstream report(read_file(work().parent_path() / "report"));
  int runs = 0;
  int failed = 0;
  int requests = 0;
  report >> runs >> failed >> requests;
  std::string faults;
  std::getline(report >> std::ws, faults, '\0');
  EXPECT_EQ(faults, "");
  if (std::string(std::get<1>(GetParam())) != "kill") {
    EXPECT_GT(failed, runs / 2) << "most requests are for what cannot be done without";
    EXPECT_GT(requests, 100);
  } else if (std::get<0>(GetParam()).every == 1 &&
             std::string(std::get<0>(GetParam()).output) != "out/none") {
    EXPECT_GE(failed, 4) << "write, fsync, linkat and rename of a file at least";
  }
  RecordProperty("runs", runs);
  RecordProperty("requests", requests);
}

INSTANTIATE_TEST_SUITE_P(Walks, ScarceCli,
                         testing::Combine(testing::ValuesIn(kWalks),
                                          testing::Values("once", "from", "kill")),
                         [](const auto& walk) {
                           return std::string(std::get<0>(walk.param).name) + '_' +
                                  std::get<1>(walk.param);
                         });

}  // namespace
}  // namespace flce::test
