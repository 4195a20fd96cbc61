// SPDX-License-Identifier: Apache-2.0
// `flce run`: values that are known, through .safetensors and .npy files, and what it refuses.
#include <nlohmann/json.hpp>

#include "cli_folder.hpp"

namespace flce::test {
namespace {

constexpr const char* kMethods[] = {"naive", "chunked", "fused", "recompute"};

Numbers identity(int size) {
  Numbers values(static_cast<std::size_t>(size * size), 0.0);
  for (int i = 0; i < size; ++i) values[i * size + i] = 1.0;
  return values;
}

class CliRun : public Folder {
 protected:
  void write(std::vector<io::Tensor> tensors, const std::string& name = "in.safetensors") const {
    std::vector<io::TensorView> views;
    for (io::Tensor& tensor : tensors) views.push_back(tensor.view());
    io::write_safetensors(path(name), views);
  }
  template <typename... Tensors>
  void write_tensors(Tensors... tensors) const {
    std::vector<io::Tensor> all;
    (all.push_back(std::move(tensors)), ...);
    write(std::move(all));
  }
  // hidden, weight and target in one file, and more tensors of the same element type.
  void write_problem(const Numbers& hidden, io::Shape hidden_shape, const Numbers& weight,
                     std::int64_t vocab, const Numbers& target,
                     const std::map<std::string, std::pair<io::Shape, Numbers>>& more = {},
                     Dtype dtype = Dtype::kF64) const {
    const std::int64_t width = hidden_shape[1];
    std::vector<io::Tensor> tensors;
    tensors.push_back(make_tensor("hidden", dtype, std::move(hidden_shape), hidden));
    tensors.push_back(make_tensor("weight", dtype, {vocab, width}, weight));
    tensors.push_back(
        make_tensor("target", Dtype::kI64, {static_cast<std::int64_t>(target.size())}, target));
    for (const auto& [name, tensor] : more) {
      tensors.push_back(make_tensor(name, dtype, tensor.first, tensor.second));
    }
    write(std::move(tensors));
  }
  Numbers result(const std::string& tensor, const std::string& file = "out.safetensors") const {
    return numbers_of(io::read_safetensors(path(file)).tensor(tensor).view);
  }
  // Runs the standard files with these options and compares one result.
  void expect_result(const std::string& options, const std::string& tensor, const Numbers& want,
                     double tolerance = 1e-7) const {
    fine("run --input in.safetensors --output out.safetensors --quiet " + options);
    expect_near(result(tensor), want, tolerance, options + " " + tensor);
  }
  void write_case14() const { write_problem({1, 1, 1, 1}, {4, 1}, {2, 0}, 2, {0, 1, 1, 1}); }
};

TEST_F(CliRun, Case14AnyChunkAndMethodGivesTheSame) {
  write_case14();
  for (const std::string method : kMethods) {
    for (const char* chunk : {"1", "2", "3", "4", "5", "1024"}) {
      const std::string options =
          "--method " + method + (method == "naive" ? "" : std::string(" --chunk ") + chunk);
      expect_result(options, "loss", {1.6269280});
      expect_near(result("grad_weight"), {0.6307971, -0.6307971}, 1e-7, options);
    }
    expect_result("--reduction none --method " + method, "loss",
                  {0.1269280, 2.1269280, 2.1269280, 2.1269280});
  }
}

TEST_F(CliRun, Case17MicroBatchesWithANormalizerAccumulate) {
  write_problem({1}, {1, 1}, {2, 0}, 2, {0});
  fine("run --input in.safetensors --output first.safetensors --normalizer 4");
  const Numbers start = result("grad_weight", "first.safetensors");
  write_problem({1, 1, 1}, {3, 1}, {2, 0}, 2, {1, 1, 1}, {{"grad_weight", {{2, 1}, start}}});
  for (const std::string method : kMethods) {
    expect_result("--normalizer 4 --method " + method, "grad_weight", {0.6307971, -0.6307971});
    EXPECT_NEAR(result("loss")[0] + result("loss", "first.safetensors")[0], 1.6269280, 1e-7);
  }
}

TEST_F(CliRun, Case22LabelSmoothingLeavesIgnoredRowsOut) {
  const Numbers hidden{0, 0, 0, 0, 1, 2, 3, 4};
  write_problem(hidden, {2, 4}, identity(4), 4, {-100, 3});
  expect_result("--label-smoothing 0.1", "loss", {0.5901897});
  expect_near(result("grad_hidden"), {0, 0, 0, 0, 0.0070586, 0.0621443, 0.2118828, -0.2810857},
              1e-7, "grad_hidden");
  write_problem(hidden, {2, 4}, identity(4), 4, {0, 3});
  expect_result("--label-smoothing 0.1", "loss", {0.9882420});
}

TEST_F(CliRun, Case24MeanDividesByTheTargetsWeights) {
  write_problem({0, 0, 0, 0, 1, 2, 3, 4}, {2, 4}, identity(4), 4, {0, 3},
                {{"class_weight", {{4}, {1, 2, 3, 4}}}});
  expect_result("", "loss", {0.6294106});
}

TEST_F(CliRun, Case9UpstreamPerToken) {
  write_problem({1, 2}, {2, 1}, {0, 0}, 2, {0, 1},
                {{"grad_output", {{2}, {1, 3}}}, {"bias", {{2}, {0, 0}}}});
  expect_result("--reduction none", "grad_weight", {2.5, -2.5}, 1e-12);
  expect_near(result("grad_bias"), {1, -1}, 1e-12, "grad_bias");
}

TEST_F(CliRun, Case75SoftcapAnd76Scale) {
  write_problem({60, 0}, {1, 2}, identity(2), 2, {1});
  expect_result("--softcap 30", "loss", {28.9208274});
  expect_near(result("grad_hidden"), {0.0706508, -1.0}, 1e-7, "grad_hidden");
  write_problem({8, 0}, {1, 2}, identity(2), 2, {0});
  expect_result("--scale 0.125", "loss", {0.3132617});
  expect_near(result("grad_hidden"), {-0.0336177, 0.0336177}, 1e-7, "grad_hidden");
}

TEST_F(CliRun, Case77Bias) {
  write_problem({1}, {1, 1}, {0, 0, 0, 0}, 4, {3},
                {{"bias", {{4}, {0, std::log(2.0), std::log(3.0), std::log(4.0)}}}});
  expect_result("", "loss", {0.9162907});
  expect_near(result("grad_bias"), {0.1, 0.2, 0.3, -0.6}, 1e-12, "grad_bias");
  expect_near(result("grad_weight"), {0.1, 0.2, 0.3, -0.6}, 1e-12, "grad_weight");
  expect_result("--no-grad-bias --no-grad-weight", "loss", {0.9162907});
  const io::Safetensors file = io::read_safetensors(path("out.safetensors"));
  EXPECT_TRUE(file.contains("grad_hidden"));
  EXPECT_FALSE(file.contains("grad_bias"));
  EXPECT_FALSE(file.contains("grad_weight"));
}

TEST_F(CliRun, Case78TemperaturePerToken) {
  write_problem({1, 0, 1, 0}, {2, 2}, identity(2), 2, {0, 0}, {{"temperature", {{2}, {0.5, 2}}}});
  expect_result("--reduction none", "loss", {0.1269280, 0.4740770});
  expect_near(result("grad_hidden"), {-0.2384058, 0.2384058, -0.1887703, 0.1887703}, 1e-7,
              "grad_hidden");
}

TEST_F(CliRun, Case79ZLossAndItsPart) {
  write_problem({0, 0, 0, 0}, {1, 4}, identity(4), 4, {0});
  expect_result("", "loss", {1.3862944});
  expect_result("--z-loss 1e-4 --outputs z_loss,logprob", "loss", {1.3864865});
  expect_near(result("grad_hidden"), {-0.7499307, 0.2500693, 0.2500693, 0.2500693}, 1e-7, "dx");
  EXPECT_NEAR(result("z_loss")[0] - result("logprob")[0], result("loss")[0], 1e-12);
}

TEST_F(CliRun, EveryOutputComesWithItsShapeAndType) {
  write_problem({0, 1, 2, 0, 0, 3}, {3, 2}, identity(2), 2, {1, 1, -100}, {}, Dtype::kF32);
  fine(
      "run --input in.safetensors --output out.safetensors --reduction none "
      "--outputs lse,logprob,entropy,argmax,topk=2,z_loss,num_correct,num_valid");
  const io::Safetensors file = io::read_safetensors(path("out.safetensors"));
  const std::map<std::string, std::pair<std::string, io::Shape>> want{
      {"loss", {"F32", {3}}},
      {"lse", {"F32", {3}}},
      {"logprob", {"F32", {3}}},
      {"entropy", {"F32", {3}}},
      {"z_loss", {"F32", {3}}},
      {"argmax", {"I64", {3}}},
      {"num_correct", {"I64", {1}}},
      {"num_valid", {"I64", {1}}},
      {"topk_logprob", {"F32", {3, 2}}},
      {"topk_index", {"I64", {3, 2}}},
      {"grad_hidden", {"F32", {3, 2}}},
      {"grad_weight", {"F32", {2, 2}}}};
  EXPECT_EQ(file.entries().size(), want.size());
  for (const io::SafetensorsEntry& entry : file.entries()) {
    ASSERT_TRUE(want.contains(entry.name)) << entry.name;
    EXPECT_EQ(entry.type, want.at(entry.name).first) << entry.name;
    EXPECT_EQ(entry.shape, want.at(entry.name).second) << entry.name;
  }
  EXPECT_EQ(result("num_correct"), Numbers{1});
  EXPECT_EQ(result("num_valid"), Numbers{2});
  EXPECT_EQ(result("argmax"), (Numbers{1, 0, 0}));
  EXPECT_EQ(result("topk_index"), (Numbers{1, 0, 0, 1, 0, 0}));
  EXPECT_EQ(result("loss")[2], 0.0);
  EXPECT_TRUE(contains(file.metadata().at("problem"), "n3_h2_v2 f32 none"));
}

TEST_F(CliRun, NpyFilesGoToAFolder) {
  const auto write_npy = [&](const char* file, io::Tensor tensor) {
    io::write_npy(path(file), tensor.view());
  };
  write_npy("x.npy", make_tensor("x", Dtype::kF32, {4, 1}, {1, 1, 1, 1}));
  write_npy("w.npy", make_tensor("w", Dtype::kF32, {2, 1}, {2, 0}));
  write_npy("y.npy", make_tensor("y", Dtype::kI32, {4}, {0, 1, 1, 1}));
  write_npy("g.npy", make_tensor("g", Dtype::kF32, {1}, {2}));
  const std::string files = "run --hidden x.npy --weight w.npy --target y.npy ";
  fine(files + "--output results --method recompute --chunk 3 --grad-output g.npy");
  expect_near(numbers_of(io::read_npy(path("results/loss.npy")).view), {1.6269280}, 1e-6, "loss");
  expect_near(numbers_of(io::read_npy(path("results/grad_weight.npy")).view),
              {2 * 0.6307971, -2 * 0.6307971}, 1e-6, "grad_weight");
  EXPECT_EQ(io::read_npy(path("results/grad_hidden.npy")).view.shape, (io::Shape{4, 1}));
  expect_refused("run --hidden x.npy --weight w.npy --output other", {"--target", "missing"});
  expect_refused(files + "--output x.npy", {"x.npy", "folder"});
  expect_refused(files + "--output new.npy", {"new.npy", ".safetensors", "folder"});
  write_file("plain", "");
  expect_refused(files + "--output plain", {"plain", "is a file"});
  expect_refused(files + "--output no/such/folder", {"no/such"});
  expect_refused("run --hidden y.npy --weight w.npy --target y.npy --output other", {"hidden"});
}

TEST_F(CliRun, TheOutputsNameSaysWhatIsWritten) {
  write_case14();
  const std::string run = "run --input in.safetensors --output ";
  expect_refused(run + "out.npy", {"--output out.npy", "name a .safetensors file"});
  expect_refused(run + "out.npz", {"--output out.npz", "name a .safetensors file"});
  const io::Safetensors in = io::read_safetensors(path("in.safetensors"));
  for (const char* name : {"hidden", "weight", "target"}) {
    io::write_npy(path(name + std::string(".npy")), in.tensor(name).view);
  }
  const std::string files = "run --hidden hidden.npy --weight weight.npy --target target.npy ";
  fine(files + "--output out.safetensors");
  EXPECT_NEAR(result("loss")[0], 1.6269280, 1e-7);
  // The folder's files are outputs as well.
  fine(files + "--output results");
  expect_refused(
      "run --hidden results/grad_hidden.npy --weight weight.npy --target target.npy "
      "--output ./results",
      {"./results/grad_hidden.npy", "replace the input"});
  // A gradient that is added to may stand where its start did.
  fine(files + "--grad-weight results/grad_weight.npy --output ./results");
  std::filesystem::create_directories(path("odd/loss.npy"));
  expect_refused(files + "--output odd", {"odd/loss.npy", "is a folder"});
}

TEST_F(CliRun, HelpNamesEveryMethodThatRuns) {
  write_case14();
  const std::string help = fine("run --help");
  for (const char* method :
       {"naive", "chunked", "fused", "recompute", "naive-eager", "chunked-eager"}) {
    EXPECT_TRUE(contains(help, method)) << help;
    expect_result(std::string("--method ") + method, "loss", {1.6269280});
  }
}

TEST_F(CliRun, SummaryAndJson) {
  write_case14();
  const std::string run = "run --input in.safetensors --output out.safetensors ";
  EXPECT_EQ(fine(run + "--quiet"), "");
  const std::string line = fine(run + "--method fused --chunk 3");
  EXPECT_TRUE(contains(line, "fused, chunk 3 (2 chunks), ")) << line;
  EXPECT_TRUE(contains(line, ": loss 1.626928")) << line;
  EXPECT_EQ(std::count(line.begin(), line.end(), '\n'), 1) << line;
  const auto json = nlohmann::json::parse(fine(run + "--json --method naive"));
  EXPECT_EQ(json["method"], "naive");
  EXPECT_NEAR(json["loss"].get<double>(), 1.6269280, 1e-7);
  EXPECT_EQ(json["used_bytes"], json["extra_bytes"]);
  EXPECT_EQ(json["tensors"].size(), 3U);
}

TEST_F(CliRun, AllIgnoredMeanIsNanAndGradientsAreZero) {
  write_problem({1, 2, 3}, {3, 1}, {1, 2}, 2, {-100, -100, -100});
  fine("run --input in.safetensors --output out.safetensors");
  EXPECT_TRUE(std::isnan(result("loss")[0]));
  EXPECT_EQ(result("grad_hidden"), (Numbers{0, 0, 0}));
  EXPECT_EQ(result("grad_weight"), (Numbers{0, 0}));
}

TEST_F(CliRun, RefusesWrongTensorsAndLeavesNothing) {
  const std::string run = "run --input in.safetensors --output out.safetensors";
  write_tensors(make_tensor("hidden", Dtype::kF64, {2, 1}, {1, 1}));
  expect_refused(run, {"weight", "in.safetensors"});
  write_problem({1}, {1, 1}, {1, 1}, 2, {0}, {{"surprise", {{1}, {1}}}});
  expect_refused(run, {"surprise", "known", "hidden"});
  write_problem({1}, {1, 1}, {1, 1}, 2, {0}, {{"bias", {{3}, {1, 1, 1}}}});
  expect_refused(run, {"bias", "3", "2"});
  write_problem({1}, {1, 1}, {1, 1}, 2, {0}, {{"grad_weight", {{1, 2}, {1, 1}}}});
  expect_refused(run, {"grad_weight", "(1, 2)", "(2, 1)"});
  expect_refused(run + " --grad-weight-f32", {"--grad-weight-f32", "grad_weight", "f64"});
  expect_refused(run + " --no-grad-weight", {"grad_weight", "not asked for"});
  write_problem({1}, {1, 1}, {1, 1}, 2, {7});
  expect_refused(run, {"target", "7"});
  write_tensors(make_tensor("hidden", Dtype::kF64, {1, 1, 1}, {1}),
                make_tensor("weight", Dtype::kF64, {2, 1}, {1, 1}),
                make_tensor("target", Dtype::kI64, {1}, {0}));
  expect_refused(run, {"hidden", "(1, 1, 1)", "(N, H)"});
  write_tensors(make_tensor("hidden", Dtype::kF64, {1, 1}, {1}),
                make_tensor("weight", Dtype::kF32, {2, 1}, {1, 1}),
                make_tensor("target", Dtype::kI64, {1}, {0}));
  expect_refused(run, {"weight", "f32", "f64"});
  write_tensors(make_tensor("hidden", Dtype::kF64, {1, 1}, {1}),
                make_tensor("weight", Dtype::kF64, {2, 1}, {1, 1}),
                make_tensor("target", Dtype::kF64, {1}, {0}));
  expect_refused(run, {"target", "f64"});
}

TEST_F(CliRun, RefusesBrokenFilesAndWrongOptions) {
  write_file("short.safetensors", "abc");
  const std::string whole = [&] {
    write_case14();
    return read_file(path("in.safetensors"));
  }();
  write_file("cut.safetensors", whole.substr(0, whole.size() - 1));
  const std::string out = " --output out.safetensors";
  expect_refused("run --input short.safetensors" + out, {"short.safetensors"});
  expect_refused("run --input cut.safetensors" + out, {"cut.safetensors"});
  expect_refused("run --input none.safetensors" + out, {"none.safetensors", "No such file"});
  const std::string run = "run --input in.safetensors" + out;
  expect_refused("run --input in.safetensors", {"--output", "required"});
  expect_refused("run --input in.safetensors --output in.safetensors", {"replace the input"});
  expect_refused("run --input in.safetensors --output no/where.safetensors", {"no"});
  expect_refused(run + " --chunk 0", {"chunk", "0"});
  expect_refused(run + " --budget 10", {"budget", "smallest"});
  expect_refused(run + " --method magic", {"magic", "fused"});
  expect_refused(run + " --method naive-eager --softcap 5", {"naive-eager", "planned only"});
  expect_refused(run + " --reduction average", {"average", "mean"});
  expect_refused(run + " --outputs lse,magic", {"magic", "logprob"});
  expect_refused(run + " --outputs topk=0", {"topk"});
  expect_refused(run + " --outputs topk=1,lse,topk=2", {"--outputs names topk twice"});
  expect_refused(run + " --outputs lse --outputs lse", {"--outputs names lse twice"});
  expect_refused(run + " --outputs topk=9", {"topk"});
  // 12 bytes each for every token: nothing may ask for them first.
  expect_refused(run + " --outputs topk=1000000000000", {"topk is 1000000000000", "V = "});
  expect_refused(run + " --outputs topk=4611686018427387905", {"topk", "V = "});
  expect_refused(run + " --label-smoothing 2", {"label_smoothing", "2"});
  expect_refused(run + " --temperature 0", {"temperature", "0"});
  expect_refused(run + " --softcap nan", {"softcap", "nan"});
  for (const char* const option :
       {"--normalizer", "--label-smoothing", "--z-loss", "--softcap", "--scale", "--temperature"}) {
    for (const char* const value : {"1e-400", "1e400", "0x10", "inf", "1.0f"}) {
      expect_refused(run + " " + option + " " + value, {option, value, "number"});
    }
  }
  expect_refused(run + " --device cuda", {"cuda", "cpu"});
  expect_refused(run + " --device gpu", {"gpu", "cpu"});
  expect_refused(run + " --surprise", {"surprise"});
}

}  // namespace
}  // namespace flce::test
