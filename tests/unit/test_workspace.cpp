// SPDX-License-Identifier: Apache-2.0
// flce::Workspace: aligned, zero, movable, on 2 MiB pages where the system allows.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <fstream>
#include <limits>
#include <sstream>
#include <string>
#include <utility>

#include "flce/flce.hpp"

namespace flce {
namespace {

constexpr std::uint64_t kMiB = std::uint64_t{1} << 20;

std::uintptr_t address(Workspace& workspace) {
  return reinterpret_cast<std::uintptr_t>(workspace.span().data());
}

TEST(Workspace, IsAsLargeAsAskedAlignedAndZero) {
  for (const std::uint64_t bytes : {std::uint64_t{1}, std::uint64_t{64}, std::uint64_t{4097},
                                    2 * kMiB - 1, 2 * kMiB, 2 * kMiB + 1, 9 * kMiB}) {
    Workspace workspace(bytes);
    ASSERT_EQ(workspace.span().size(), bytes);
    EXPECT_EQ(address(workspace) % 64, 0U);
    const auto is_zero = [](std::byte b) { return b == std::byte{0}; };
    EXPECT_TRUE(std::all_of(workspace.span().begin(), workspace.span().end(), is_zero));
    std::memset(workspace.span().data(), 0xFF, bytes);
  }
  EXPECT_TRUE(Workspace(0).span().empty());
}

TEST(Workspace, Moves) {
  Workspace first(3 * kMiB);
  first.span()[5] = std::byte{7};
  Workspace second(std::move(first));
  EXPECT_EQ(second.span()[5], std::byte{7});
  Workspace third(100);
  third = std::move(second);
  EXPECT_EQ(third.span().size(), 3 * kMiB);
  EXPECT_EQ(third.span()[5], std::byte{7});
}

TEST(Workspace, TooLargeIsAnError) {
  const std::uint64_t most = std::numeric_limits<std::uint64_t>::max();
  for (const std::uint64_t bytes : {most, most - kMiB, most - 3 * kMiB, most / 2}) {
    try {
      Workspace workspace(bytes);
      ADD_FAILURE() << bytes << " bytes were given";
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), ErrorCode::kOutOfMemory);
      EXPECT_NE(std::string(error.what()).find("no memory for a workspace"), std::string::npos);
    }
  }
}

// The part of /proc/self/smaps about the mapping of an address.
std::string mapping_of(std::uintptr_t where) {
  std::ifstream file("/proc/self/smaps");
  std::string found;
  bool is_here = false;
  for (std::string line; std::getline(file, line);) {
    std::uint64_t begin = 0, end = 0;
    char dash = 0;
    std::istringstream head(line);
    if (head >> std::hex >> begin >> dash >> end && dash == '-') {
      is_here = begin <= where && where < end;
    }
    if (is_here) found += line + '\n';
  }
  return found;
}

TEST(Workspace, LargeOnesStandOnLargePagesWhereTheSystemAllows) {
  Workspace workspace(64 * kMiB);
  EXPECT_EQ(address(workspace) % (2 * kMiB), 0U);
  std::ifstream switch_file("/sys/kernel/mm/transparent_hugepage/enabled");
  std::string choices;
  std::getline(switch_file, choices);
  if (choices.empty() || choices.find("[never]") != choices.npos) {
    GTEST_SKIP() << "transparent huge pages are off here: '" << choices << "'";
  }
  std::memset(workspace.span().data(), 1, workspace.span().size());
  const std::string mapping = mapping_of(address(workspace));
  const std::size_t flags = mapping.find("VmFlags:");
  if (flags == mapping.npos) GTEST_SKIP() << "/proc/self/smaps shows no flags here";
  EXPECT_NE(mapping.find(" hg", flags), mapping.npos) << "large pages were not asked for\n"
                                                      << mapping;
  const std::size_t huge = mapping.find("AnonHugePages:");
  ASSERT_NE(huge, mapping.npos) << mapping;
  const long kib = std::atol(mapping.c_str() + huge + std::strlen("AnonHugePages:"));
  if (kib == 0) GTEST_SKIP() << "the system has no large page free";
  EXPECT_EQ(kib % 2048, 0) << mapping;
  RecordProperty("huge_kib", std::to_string(kib));
}

}  // namespace
}  // namespace flce
