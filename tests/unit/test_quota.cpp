// SPDX-License-Identifier: Apache-2.0
// The cgroup's quota from files as Linux writes them, in a folder that stands for the system's
// root.
#include <gtest/gtest.h>
#include <stdlib.h>

#include <filesystem>
#include <fstream>
#include <stdexcept>
#include <string>

#include "cpu/quota.hpp"

namespace flce::cpu {
namespace {

class Quota : public testing::Test {
 protected:
  Quota() {
    std::string pattern = (std::filesystem::temp_directory_path() / "flce-quota-XXXXXX").string();
    if (mkdtemp(pattern.data()) == nullptr) throw std::runtime_error("no temporary folder");
    root_ = pattern;
  }
  ~Quota() override { std::filesystem::remove_all(root_); }

  void write(const std::string& path, const std::string& text) const {
    const std::filesystem::path file = root_ / path;
    std::filesystem::create_directories(file.parent_path());
    std::ofstream(file) << text;
  }
  void write_v1(const std::string& group, const std::string& quota,
                const std::string& period) const {
    write("sys/fs/cgroup/cpu" + group + "/cpu.cfs_quota_us", quota);
    write("sys/fs/cgroup/cpu" + group + "/cpu.cfs_period_us", period);
  }
  int threads() const { return quota_threads(root_.string()); }

 private:
  std::filesystem::path root_;
};

TEST_F(Quota, NoFilesMeanNoQuota) {
  EXPECT_EQ(threads(), 0);
  EXPECT_EQ(quota_threads("/nowhere/at/all"), 0);
  write("proc/self/cgroup", "0::/group\n");
  EXPECT_EQ(threads(), 0);
}

TEST_F(Quota, Version2RoundsUp) {
  const std::pair<const char*, int> files[] = {
      {"max 100000\n", 0},   {"150000 100000\n", 2},      {"100000 100000\n", 1},
      {"50000 100000\n", 1}, {"1 100000\n", 1},           {"200001 100000\n", 3},
      {"400000 50000\n", 8}, {"99999999999 1000\n", 1024}};
  for (const auto& [text, want] : files) {
    write("sys/fs/cgroup/cpu.max", text);
    EXPECT_EQ(threads(), want) << text;
  }
}

TEST_F(Quota, WhatMakesNoSenseIsNoQuota) {
  for (const char* text :
       {"", "\n", "max", "150000", "abc def", "0 100000", "-1 100000", "150000 0", "150000 -5",
        "99999999999999999999 100000", "150000 max", "\xff\xfe\x00"}) {
    write("sys/fs/cgroup/cpu.max", text);
    EXPECT_EQ(threads(), 0) << text;
  }
  write("sys/fs/cgroup/cpu.max", "9223372036854775807 1");
  EXPECT_EQ(threads(), 1024);
}

TEST_F(Quota, Version1) {
  write_v1("", "-1\n", "100000\n");
  EXPECT_EQ(threads(), 0);
  write_v1("", "250000\n", "100000\n");
  EXPECT_EQ(threads(), 3);
  write_v1("", "250000\n", "");
  EXPECT_EQ(threads(), 0);
  write_v1("", "much\n", "100000\n");
  EXPECT_EQ(threads(), 0);
}

TEST_F(Quota, TheSmallestOfAllGroupsAboveCounts) {
  write("proc/self/cgroup", "0::/slice/service/worker\n");
  write("sys/fs/cgroup/slice/service/worker/cpu.max", "max 100000\n");
  write("sys/fs/cgroup/slice/service/cpu.max", "800000 100000\n");
  EXPECT_EQ(threads(), 8);
  write("sys/fs/cgroup/slice/cpu.max", "300000 100000\n");
  EXPECT_EQ(threads(), 3);
  write("sys/fs/cgroup/slice/service/worker/cpu.max", "100000 100000\n");
  EXPECT_EQ(threads(), 1);
}

TEST_F(Quota, Version1GroupsByTheCpuController) {
  write("proc/self/cgroup",
        "12:cpuset:/elsewhere\n4:cpu,cpuacct:/docker/abc\n1:name=systemd:/x\n0::/unified\n");
  write_v1("/elsewhere", "100000\n", "100000\n");
  write_v1("/docker/abc", "500000\n", "100000\n");
  EXPECT_EQ(threads(), 5);
}

TEST_F(Quota, InAContainerThePathOfTheHostMayNotBeMounted) {
  write("proc/self/cgroup", "4:cpuacct,cpu:/docker/abc\n");
  write_v1("", "200000\n", "100000\n");
  EXPECT_EQ(threads(), 2);
}

TEST_F(Quota, LinesOfTheGroupFileThatMakeNoSenseAreSkipped) {
  write("proc/self/cgroup", "\nnothing\n0\n0:\n::\n0::\n");
  write("sys/fs/cgroup/cpu.max", "200000 100000\n");
  EXPECT_EQ(threads(), 2);
}

}  // namespace
}  // namespace flce::cpu
