// SPDX-License-Identifier: Apache-2.0
// Golden plans. Each file of this folder holds a problem text and a device, a line of dashes, and
// the plan as it must be printed. They need no device and show at review what a change to the
// planner or to a booking does. After a wanted change:
//
//   UPDATE_GOLDEN=1 build/release/bin/test_golden_plans      then read the diff
//
// A line 'needs: hopper' skips a plan in builds without the Hopper kernels. To add one, write its
// first lines, up to the dashes, and do the same.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <string>
#include <vector>

#include "core/text.hpp"
#include "cuda/route.hpp"
#include "flce/flce.hpp"

namespace flce::test {
namespace {

constexpr std::string_view kDashes = "---\n";
constexpr std::string_view kCpuThreads = "cpu threads=";

std::string read_file(const std::filesystem::path& path) {
  std::ifstream file(path);
  std::ostringstream text;
  text << file.rdbuf();
  return text.str();
}

// "problem: ..." -> "..."; empty without such a line.
std::string field(const std::string& head, const std::string& name) {
  std::istringstream lines(head);
  for (std::string line; std::getline(lines, line);) {
    if (line.rfind(name + ": ", 0) == 0) return line.substr(name.size() + 2);
  }
  return {};
}

std::string needed_field(const std::string& head, const std::string& name) {
  const std::string value = field(head, name);
  if (!value.empty()) return value;
  throw std::runtime_error("the golden file lacks a line '" + name + ": ...'");
}

// A card by name, or a processor without figures, so that it is the same on every machine.
DeviceCaps caps_by(const std::string& text) {
  if (text.rfind(kCpuThreads, 0) != 0) return caps_of(text);
  DeviceCaps caps;
  caps.num_threads = std::stoi(text.substr(kCpuThreads.size()));
  write_text(caps.name, "cpu");
  return caps;
}

std::string print_method(const MethodReport& r) {
  if (r.refused() && r.peak_bytes == 0) {
    return fmt::format("  {:<14} refused: {}\n", name_of(r.method), r.refusal.data());
  }
  return fmt::format("  {:<14} gemms {} chunk {} x {} extra {} peak {}{}{}\n", name_of(r.method),
                     r.gemms, r.chunk, r.num_chunks, r.extra_bytes, r.peak_bytes,
                     r.refused() ? " refused: " : "", r.refusal.data());
}

std::string print_plan(const Plan& p) {
  std::string text = fmt::format("method {}\nchunk {} x {}, slab {}\n", name_of(p.method), p.chunk,
                                 p.num_chunks, p.slab);
  if (p.route != Route::kAuto) text += fmt::format("route {}\n", name_of(p.route));
  text += fmt::format("input_bytes {}\noutput_bytes {}\nworkspace_bytes {}\nsaved_bytes {}\n",
                      p.input_bytes, p.output_bytes, p.workspace_bytes, p.saved_bytes);
  text += fmt::format("extra_bytes {} ({})\npeak_bytes {} ({})\nslots\n", p.extra_bytes,
                      format_bytes(p.extra_bytes), p.peak_bytes, format_bytes(p.peak_bytes));
  for (int i = 0; i < kNumSlots; ++i) {
    const SlotPlace& slot = p.slots[static_cast<std::size_t>(i)];
    if (slot.bytes == 0) continue;
    text += fmt::format("  {:<16} {:>14} at {}{}\n", name_of(static_cast<Slot>(i)), slot.bytes,
                        slot.offset, slot.saved ? " saved" : "");
  }
  text += "methods\n";
  for (const MethodReport& report : p.methods) text += print_method(report);
  return text;
}

std::string planned(const std::string& head) {
  const ProblemText parsed = parse_problem(needed_field(head, "problem"));
  try {
    return print_plan(plan(parsed.problem, caps_by(needed_field(head, "caps")), parsed.request));
  } catch (const Error& error) {
    return fmt::format("error {}: {}\n", static_cast<int>(error.code()), error.what());
  }
}

std::vector<std::string> golden_names() {
  std::vector<std::string> names;
  for (const auto& entry : std::filesystem::directory_iterator(FLCE_GOLDEN_DIR)) {
    if (entry.path().extension() == ".txt" && entry.path().stem() != "CMakeLists") {
      names.push_back(entry.path().stem().string());
    }
  }
  std::sort(names.begin(), names.end());
  return names;
}

class GoldenPlan : public testing::TestWithParam<std::string> {};

TEST_P(GoldenPlan, IsAsItWas) {
  const std::filesystem::path path = std::filesystem::path(FLCE_GOLDEN_DIR) / (GetParam() + ".txt");
  const std::string text = read_file(path);
  const std::size_t dashes = text.find(kDashes);
  ASSERT_NE(dashes, std::string::npos) << path << " has no line of three dashes";
  const std::string head = text.substr(0, dashes);
  if (field(head, "needs") == "hopper" && !cuda::has_hopper()) {
    GTEST_SKIP() << "this build is without the Hopper kernels";
  }
  const std::string now = planned(head);
  const std::string golden = text.substr(dashes + kDashes.size());
  if (now == golden) return;
  if (std::getenv("UPDATE_GOLDEN") != nullptr) {
    std::ofstream(path) << head << kDashes << now;
    return;
  }
  FAIL() << path << "\nis\n"
         << golden << "\nand the planner now says\n"
         << now << "\nIf that is wanted: UPDATE_GOLDEN=1 test_golden_plans, and read the diff.";
}

INSTANTIATE_TEST_SUITE_P(Plans, GoldenPlan, testing::ValuesIn(golden_names()),
                         [](const auto& golden) { return golden.param; });

TEST(GoldenPlans, ThereAreSome) { EXPECT_GE(golden_names().size(), 15u); }

}  // namespace
}  // namespace flce::test
