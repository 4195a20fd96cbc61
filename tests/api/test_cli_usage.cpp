// SPDX-License-Identifier: Apache-2.0
// What is refused of a command's options before any work: numbers that do not fit, empty values,
// files that would replace one another, options that would be ignored.
#include "cli_folder.hpp"

namespace flce::test {
namespace {

class CliUsage : public Folder {};

// An option beside what its command needs; `{}` is where the value goes.
constexpr const char* kWholeNumbers[] = {
    "run --input i --output o.safetensors --chunk ",
    "run --input i --output o.safetensors --ignore-index ",
    "run --input i --output o.safetensors --shift ",
    "run --input i --output o.safetensors --shift 1 --sequence-length ",
    "run --input i --output o.safetensors --threads ",
    "verify n4_h8_v9 --seed ",
    "bench n4_h8_v9 --seed ",
    "bench n4_h8_v9 --rounds ",
    "bench n4_h8_v9 --warmup ",
    "bench n4_h8_v9 --chunks 1,",
    "bench n4_h8_v9 --chunk-sizes ",
    "train t.txt --batch ",
    "train t.txt --vocab ",
    "train t.txt --steps ",
    "train t.txt --warmup ",
    "train t.txt --eval-every ",
    "train t.txt --seed ",
    "train t.txt --chunk ",
    "tune --tokens 1 --hidden 8 --vocab 9 --rounds ",
    "plan --preset gpt2 --tokens ",
};

TEST_F(CliUsage, AWholeNumberIsNeitherCutNorWrapped) {
  for (const std::string args : kWholeNumbers) {
    for (const std::string number : {"99999999999999999999", "-99999999999999999999",
                                     "18446744073709551617", "2.5", "0x10", "many", "1e3"}) {
      expect_refused(args + number, {"'" + number + "' is not a whole number"});
    }
  }
  for (const char* command : {"verify", "bench"}) {
    expect_refused(std::string(command) + " n4_h8_v9 --seed -1", {"--seed", "'-1'", "at least 0"});
    expect_refused(std::string(command) + " n4_h8_v9 --seed 18446744073709551616", {"64 bits"});
  }
  fine("verify n4_h8_v9 method=fused --seed 18446744073709551615");
  EXPECT_EQ(fine("verify n4_h8_v9 method=fused --seed 010"),
            fine("verify n4_h8_v9 method=fused --seed 10"));
  expect_refused("bench n4_h8_v9 --rounds 100001", {"'100001'", "from 0 to 100000"});
}

TEST_F(CliUsage, ANumberIsFinite) {
  for (const char* number : {"nan", "inf", "-inf", "1e999"}) {
    for (const char* option :
         {"verify n4_h8_v9 --ignored", "verify n4_h8_v9 --limit-scale", "train t.txt --lr",
          "train t.txt --weight-decay", "bench n4_h8_v9 --device cuda --warm-seconds"}) {
      expect_refused(option + std::string(" ") + number,
                     {std::string("'") + number + "' is not a"});
    }
  }
}

TEST_F(CliUsage, AnEmptyValueIsRefused) {
  for (const char* value : {"=", "= -- ", " ''"}) {
    expect_refused("bench n4_h8_v9 --csv" + std::string(value) + " --svg m.svg",
                   {"--csv has an empty value", "flce bench --help"});
    expect_refused("bench n4_h8_v9 --json" + std::string(value), {"--json has an empty value"});
    expect_refused("run --input i.safetensors --output" + std::string(value) + " --method fused",
                   {"--output has an empty value"});
    expect_refused("verify n4_h8_v9 --data" + std::string(value), {"--data has an empty value"});
    expect_refused("train t.txt --save" + std::string(value), {"--save has an empty value"});
    expect_refused("plan --tokens 4 --preset" + std::string(value) + " --json", {"--preset"});
    expect_refused("tune --device" + std::string(value), {"--device has an empty value"});
  }
  EXPECT_TRUE(contains(fine("plan --tokens=4 --preset=gpt2"), "4 tokens"));
}

TEST_F(CliUsage, OutputsOfACommandAreApart) {
  std::filesystem::create_symlink("real.csv", path("link.csv"));
  const std::string bench = "bench n4_h8_v9 ";
  expect_refused(bench + "--csv x --svg x", {"--csv x and --svg x are one file"});
  expect_refused(bench + "--csv x --svg-time ./x", {"--csv x and --svg-time ./x are one file"});
  expect_refused(bench + "--svg x --json y.json --svg-time " + path("x"),
                 {"--svg x and --svg-time " + path("x") + " are one file"});
  // A link that leads nowhere cannot be written; one that leads to a file is that file.
  expect_refused(bench + "--csv link.csv", {"--csv link.csv", "cannot be followed"});
  write_file("real.csv", "old");
  expect_refused(bench + "--csv link.csv --svg real.csv", {"are one file"});
  expect_refused(bench + "--json - --svg -", {"--json and --svg", "stdout"});
}

TEST_F(CliUsage, WhatCannotBeWrittenIsFoundBeforeTheWork) {
  for (const char* command : {"bench n4_h8_v9 --csv", "bench n4_h8_v9 --svg", "train t.txt --save",
                              "run --input i.safetensors --output"}) {
    expect_refused(std::string(command) + " /dev/full", {"/dev/full", "is a device", "regular"});
  }
}

TEST_F(CliUsage, NoOptionIsAcceptedAndIgnored) {
  const std::string run = "run --input i.safetensors --output o.safetensors ";
  expect_refused(run + "--chunk 2 --policy liger", {"--chunk 2", "--policy liger", "leave out"});
  expect_refused(run + "--chunk 2 --method naive", {"--chunk 2", "naive", "fused"});
  expect_refused(run + "--policy liger --method naive-eager", {"--policy liger", "naive-eager"});
  expect_refused(run + "--sequence-length 4", {"--sequence-length 4", "--shift"});
  expect_refused(run + "--sequence-length 4 --shift 0", {"--sequence-length 4", "--shift"});
  expect_refused(run + "--quiet --json", {"--quiet", "--json"});
  expect_refused(run + "--grad-weight-f32 --no-grad-weight", {"--no-grad-weight", "leave out"});
  expect_refused("train t.txt --chunk 2 --method naive", {"--chunk 2", "naive"});
  expect_refused("train t.txt --chunk 0", {"--chunk 0", "at least 1"});
  expect_refused("plan --preset gpt2 --tokens 4 --policy liger --method naive", {"naive"});
  expect_refused("plan --preset gpt2 --tokens 4 --device cuda:1 --device-caps h200",
                 {"--device cuda:1", "--device-caps h200", "leave out one"});
  const std::string bench = "bench n4_h8_v9 ";
  expect_refused(bench + "method=fused --methods naive", {"--methods", "method=fused"});
  expect_refused(bench + "chunk=2 --chunks 2", {"--chunks", "chunk="});
  expect_refused(bench + "policy=liger --chunk-sizes 2", {"--chunk-sizes", "policy="});
  expect_refused(bench + "--methods naive,forward --chunks 2", {"--chunks", "takes a chunk"});
}

}  // namespace
}  // namespace flce::test
