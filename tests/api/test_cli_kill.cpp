// SPDX-License-Identifier: Apache-2.0
// `kill -9` while a command works, at times that differ from run to run: what it writes is there as
// it was before or whole, and what a killed run leaves stops no later one.
#include <fcntl.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <functional>
#include <random>
#include <thread>

#include "cli_folder.hpp"

namespace flce::test {
namespace {

constexpr int kKills = 12;  // of each command

class CliKill : public Folder {
 protected:
  using Clock = std::chrono::steady_clock;

  // Seconds of a whole run.
  double seconds_of(const std::string& args) const {
    const auto start = Clock::now();
    fine(args);
    return std::chrono::duration<double>(Clock::now() - start).count();
  }

  // Whether the command was killed before its end.
  bool kill_after(const std::vector<std::string>& args, double seconds) const {
    std::vector<char*> argv;
    for (const std::string& arg : args) argv.push_back(const_cast<char*>(arg.c_str()));
    argv.push_back(nullptr);
    const char* moved = std::getenv("FLCE_CLI");
    const std::string command = moved != nullptr ? moved : FLCE_CLI;
    const std::string folder = work().string();
    const pid_t child = ::fork();
    if (child == 0) {
      const int nowhere = ::open("/dev/null", O_RDWR);
      ::dup2(nowhere, STDOUT_FILENO);
      if (::chdir(folder.c_str()) == 0) ::execv(command.c_str(), argv.data());
      ::_exit(127);
    }
    std::this_thread::sleep_for(std::chrono::duration<double>(seconds));
    ::kill(child, SIGKILL);
    int status = -1;
    ::waitpid(child, &status, 0);
    EXPECT_TRUE(WIFSIGNALED(status) || WEXITSTATUS(status) == 0) << "exit status " << status;
    return WIFSIGNALED(status);
  }

  // Kills `flce ARGS` again and again; is_whole(text, right) says whether a file is what a whole
  // run writes, which once wrote `right`.
  template <typename IsWhole>
  void kill_often(const std::vector<std::string>& args, const std::vector<std::string>& files,
                  IsWhole is_whole) {
    std::string line;
    for (std::size_t i = 1; i < args.size(); ++i) line += " '" + args[i] + "'";
    const double whole = seconds_of(line);
    std::map<std::string, std::string> right;
    for (const std::string& file : files) right[file] = read_file(path(file));
    const std::string old = "what stood here before\n";
    std::mt19937 random(std::random_device{}());
    std::uniform_real_distribution<double> share(0.0, 1.2);
    int killed = 0;
    for (int round = 0; round < kKills; ++round) {
      for (const std::string& file : files) write_file(file, old);
      const double seconds = whole * share(random);
      killed += kill_after(args, seconds);
      for (const std::string& file : files) {
        const std::string text = read_file(path(file));
        EXPECT_TRUE(text == old || is_whole(text, right[file]))
            << file << " after " << seconds << " s";
      }
    }
    RecordProperty("killed", killed);
    fine(line);
    for (const std::string& file : files) {
      EXPECT_TRUE(is_whole(read_file(path(file)), right[file])) << file;
    }
  }
};

TEST_F(CliKill, RunLeavesItsOutputWhole) {
  constexpr std::int64_t kVocab = 30000;
  constexpr std::int64_t kHidden = 64;  // a gradient of eight megabytes
  const Numbers ones(static_cast<std::size_t>(kVocab * kHidden), 0.5);
  const io::Tensor hidden = make_tensor("hidden", Dtype::kF32, {2, kHidden}, Numbers(128, 0.25));
  const io::Tensor weight = make_tensor("weight", Dtype::kF32, {kVocab, kHidden}, ones);
  const io::Tensor target = make_tensor("target", Dtype::kI64, {2}, {7, 29999});
  const io::TensorView tensors[] = {hidden.view(), weight.view(), target.view()};
  io::write_safetensors(path("in.safetensors"), tensors);
  const std::vector<std::string> args{
      "flce", "run", "--device", "cpu", "--input", "in.safetensors", "--output", "out.safetensors"};
  kill_often(args, {"out.safetensors"}, std::equal_to<std::string>());
}

TEST_F(CliKill, BenchLeavesItsTablesAndPlotsWhole) {
  const std::vector<std::string> args{
      "flce",         "bench",     "--device",  "cpu",
      "n64_h16_v500", "softcap=5", "--methods", "naive-eager,chunked-eager",
      "--csv",        "o.csv",     "--json",    "o.json",
      "--svg",        "m.svg"};
  const auto num_lines = [](const std::string& text) {
    return std::count(text.begin(), text.end(), '\n');
  };
  // Dates and figures differ from run to run.
  kill_often(args, {"o.csv", "o.json", "m.svg"},
             [&](const std::string& text, const std::string& right) {
               return num_lines(text) == num_lines(right) && text.back() == '\n';
             });
}

TEST_F(CliKill, TrainLeavesItsWeightsWhole) {
  std::string text;
  for (int i = 0; i < 300; ++i) text += "word" + std::to_string(i) + " and the cat and the dog ";
  write_file("text.txt", text);
  const std::vector<std::string> args{
      "flce",    "train", "text.txt", "--device", "cpu",    "--steps",          "3",
      "--batch", "64",    "--embed",  "16",       "--save", "model.safetensors"};
  kill_often(args, {"model.safetensors"}, std::equal_to<std::string>());
}

}  // namespace
}  // namespace flce::test
