// SPDX-License-Identifier: Apache-2.0
// Every door of the library, with each of its requests for memory or a thread refused in turn: the
// call says so or does without, has written nothing if it failed, keeps nothing, and the next call
// is right. Each in a fresh child process, where a first call sets up what it needs, and again in
// one that is warm.
#include <gtest/gtest.h>
#include <sys/mman.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <iterator>
#include <new>
#include <ostream>
#include <string>

#include "flce/advice.hpp"
#include "flce/flce.h"
#include "flce/flce.hpp"
#include "scarce/scarce.h"
#include "support/child.hpp"

namespace flce_test {
namespace {

constexpr std::int64_t kTokens = 40;
constexpr std::int64_t kHidden = 24;
constexpr std::int64_t kVocab = 300;
constexpr float kPoison = -12345.0F;

// What a call reads and writes; static, so that a call needs no memory of the test.
struct Memory {
  std::array<float, kTokens * kHidden> hidden;
  std::array<float, kVocab * kHidden> weight;
  std::array<std::int64_t, kTokens> target;
  struct Outputs {
    std::array<float, 1> loss;
    std::array<float, kTokens * kHidden> grad_hidden;
    std::array<float, kVocab * kHidden> grad_weight;
  } out;
  alignas(64) std::array<std::byte, 1 << 20> workspace;
  alignas(64) std::array<std::byte, 1 << 16> saved;
};
Memory memory;
constexpr std::size_t kNumOutputs = sizeof(Memory::Outputs) / sizeof(float);

float* outputs() { return memory.out.loss.data(); }
void poison() { std::fill_n(outputs(), kNumOutputs, kPoison); }
bool is_poison() {
  return std::all_of(outputs(), outputs() + kNumOutputs, [](float x) { return x == kPoison; });
}

void fill_inputs() {
  std::uint32_t state = 7;
  const auto next = [&] { return state = state * 1664525U + 1013904223U; };
  const auto number = [&] { return static_cast<float>(next() >> 8) / (1 << 24) - 0.5F; };
  for (float& x : memory.hidden) x = number();
  for (float& x : memory.weight) x = number();
  for (std::int64_t& y : memory.target) y = next() % kVocab;
}

// --- the doors. Each returns an flce_status; the constants of flce::ErrorCode are the same.
// --------

flce_matrix matrix(float* data, std::int64_t rows) {
  return {data, rows, kHidden, kHidden, 1, FLCE_F32, 0};
}

flce_status describe(flce_args& args) {
  const flce_status status = flce_args_init(&args, sizeof args);
  args.hidden = matrix(memory.hidden.data(), kTokens);
  args.weight = matrix(memory.weight.data(), kVocab);
  args.target = {memory.target.data(), kTokens, 1, FLCE_I64, 0};
  args.loss = {memory.out.loss.data(), 1, 1, FLCE_F32, 0};
  args.grad_hidden = matrix(memory.out.grad_hidden.data(), kTokens);
  args.grad_weight = matrix(memory.out.grad_weight.data(), kVocab);
  return status;
}

flce_status planned(flce_args& args, flce_plan& plan, std::uint64_t budget = 0) {
  flce_plan_request request;
  flce_status status = flce_plan_request_init(&request, sizeof request);
  if (status != FLCE_OK) return status;
  request.num_threads = 3;
  request.budget_bytes = budget;
  plan.struct_size = sizeof plan;
  return flce_make_plan(&args, &request, &plan);
}

flce_status c_run() {
  flce_args args;
  flce_plan plan;
  if (const flce_status status = describe(args)) return status;
  if (const flce_status status = planned(args, plan)) return status;
  return flce_run(&args, &plan, memory.workspace.data(), memory.workspace.size());
}

// FLCE_INTERNAL if a call has failed but written; else its status, and poison if it has failed.
flce_status unchanged_if_failed(flce_status status, const Memory::Outputs& before) {
  if (status == FLCE_OK) return status;
  const bool is_unchanged = std::memcmp(&memory.out, &before, sizeof before) == 0;
  poison();
  return is_unchanged ? status : FLCE_INTERNAL;
}

flce_status c_two_calls() {
  flce_args args;
  flce_plan plan;
  float upstream = 0.5F;
  if (const flce_status status = describe(args)) return status;
  args.pass = FLCE_PASS_FORWARD_BACKWARD;
  args.grad_output = {&upstream, 1, 1, FLCE_F32, 0};
  if (const flce_status status = planned(args, plan)) return status;
  const flce_status status =
      flce_forward(&args, &plan, memory.workspace.data(), memory.workspace.size(),
                   memory.saved.data(), memory.saved.size());
  if (status != FLCE_OK) return status;
  static Memory::Outputs before;
  before = memory.out;
  return unchanged_if_failed(
      flce_backward(&args, &plan, memory.workspace.data(), memory.workspace.size(),
                    memory.saved.data(), memory.saved.size()),
      before);
}

flce_status c_scale() {
  float upstream = 0.25F;
  const flce_vector factor{&upstream, 1, 1, FLCE_F32, 0};
  const flce_matrix grad_hidden = matrix(memory.out.grad_hidden.data(), kTokens);
  memory.out.grad_hidden = memory.hidden;
  static Memory::Outputs before;
  before = memory.out;
  return unchanged_if_failed(
      flce_scale_grads_on(FLCE_DEVICE_CPU, nullptr, &factor, &grad_hidden, nullptr, nullptr),
      before);
}

flce_status c_bad_target() {
  memory.target[17] = kVocab;
  const flce_status status = c_run();
  memory.target[17] = 0;
  poison();  // what a call that fails for its targets leaves is not said
  return status;
}

flce_status c_bad_budget() {
  flce_args args;
  flce_plan plan;
  if (const flce_status status = describe(args)) return status;
  return planned(args, plan, 1);
}

flce_status c_questions() {
  flce_args args;
  std::uint64_t bytes = 0;
  if (const flce_status status = describe(args)) return status;
  if (const flce_status status = flce_can_serve(&args, FLCE_RECOMPUTE)) return status;
  if (const flce_status status = flce_parse_bytes("1.5GiB", &bytes)) return status;
  return flce_parse_bytes("1.5 acres", &bytes);
}

// What C++ throws, as the C interface says it.
template <typename Body>
flce_status status_of(Body body) {
  try {
    body();
    return FLCE_OK;
  } catch (const flce::Error& error) {
    return static_cast<flce_status>(error.code());
  } catch (const std::bad_alloc&) {
    return FLCE_OUT_OF_MEMORY;
  }
}

flce_status cpp_run() {
  return status_of([] {
    using namespace flce;
    Inputs in;
    in.hidden = {memory.hidden.data(), kTokens, kHidden, kHidden, 1, Dtype::kF32};
    in.weight = {memory.weight.data(), kVocab, kHidden, kHidden, 1, Dtype::kF32};
    in.target = {memory.target.data(), kTokens, 1, Dtype::kI64};
    Outputs out;
    out.loss = {memory.out.loss.data(), 1, 1, Dtype::kF32};
    out.grad_hidden = {memory.out.grad_hidden.data(), kTokens, kHidden, kHidden, 1, Dtype::kF32};
    out.grad_weight = {memory.out.grad_weight.data(), kVocab, kHidden, kHidden, 1, Dtype::kF32};
    DeviceCaps caps = cpu_caps();
    caps.num_threads = 3;
    const Plan plan = flce::plan(problem_of(in, out, {}), caps, {.method = Method::kFused});
    Workspace small(plan.workspace_bytes);
    Workspace large(std::uint64_t{5} << 20);  // mapped in another way
    run(plan, in, out, small.span());
  });
}

flce_status cpp_texts() {
  return status_of([] {
    using namespace flce;
    const ProblemText text = parse_problem("n4096_h4096_v128256 bf16 mean softcap=30");
    const Plan report = plan_report(text.problem, caps_of("h200"), text.request);
    const ModelShape model = model_preset("llama3-8b");
    const AdviceRequest request{.model = &model};
    const std::size_t size = format_problem(text.problem).size() + judge(report).reason.size() +
                             oom_checklist(report, request).size() + known_caps().size();
    memory.out.loss[0] = static_cast<float>(size);
  });
}

struct Door {
  const char* name;
  flce_status (*call)();
  flce_status want;     // where memory is plenty
  int num_threads = 1;  // that a good call leaves behind, the caller's among them
};

void PrintTo(const Door& door, std::ostream* out) { *out << door.name; }

constexpr Door kDoors[] = {
    {"c_run", c_run, FLCE_OK, 3},
    {"c_two_calls", c_two_calls, FLCE_OK, 3},
    {"c_scale", c_scale, FLCE_OK},
    {"c_bad_target", c_bad_target, FLCE_TARGET_OUT_OF_RANGE},
    {"c_bad_budget", c_bad_budget, FLCE_OUT_OF_BUDGET},
    {"c_questions", c_questions, FLCE_INVALID_ARGUMENT},
    {"cpp_run", cpp_run, FLCE_OK, 3},
    {"cpp_texts", cpp_texts, FLCE_OK},
};

// --- the walk
// --------------------------------------------------------------------------------------

// What children tell: the right outputs, the blocks that two good calls keep, and what is wrong.
struct Page {
  std::array<float, kNumOutputs> right;
  long kept_blocks;
  long refused;  // requests of the last walk's child
  int num_out_of_memory;
  std::array<char, 256> fault;
};

Page* shared_page() {
  void* memory_of_all =
      ::mmap(nullptr, sizeof(Page), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  return memory_of_all == MAP_FAILED ? nullptr : new (memory_of_all) Page();
}

bool report(Page& page, const Door& door, long at, const char* what, long number) {
  std::snprintf(page.fault.data(), page.fault.size(), "%s, request %ld: %s (%ld)", door.name, at,
                what, number);
  return false;
}

// A call where memory is plenty.
bool is_right(Page& page, const Door& door, long at) {
  poison();
  const flce_status status = door.call();
  if (status != door.want) return report(page, door, at, "the next call has status", status);
  if (std::memcmp(outputs(), page.right.data(), sizeof page.right) != 0) {
    return report(page, door, at, "the next call gives other numbers", 0);
  }
  const auto threads = std::distance(std::filesystem::directory_iterator("/proc/self/task"), {});
  return threads >= door.num_threads ||
         report(page, door, at, "the next call does without threads that it could have", threads);
}

// A call whose `at`-th request is refused.
bool fails_well(Page& page, const Door& door, long at, int mode) {
  poison();
  scarce_arm(at, mode, SCARCE_ALL);
  const flce_status status = door.call();
  page.refused = scarce_disarm();
  if (status == FLCE_OUT_OF_MEMORY) {
    page.num_out_of_memory += 1;
    if (!is_poison()) return report(page, door, at, "a failed call has written", 0);
    if (page.refused == 0) return report(page, door, at, "nothing was refused", 0);
    return true;
  }
  if (status != door.want) return report(page, door, at, "status", status);
  return std::memcmp(outputs(), page.right.data(), sizeof page.right) == 0 ||
         report(page, door, at, "it did without, but gives other numbers", 0);
}

void learn(Page& page, const Door& door) {
  ASSERT_EQ(status_of_child([&] {
              const long before = scarce_live_blocks();
              poison();
              bool same = door.call() == door.want;
              std::memcpy(page.right.data(), outputs(), sizeof page.right);
              same = is_right(page, door, 0) && same;
              page.kept_blocks = scarce_live_blocks() - before;
              return same;
            }),
            0)
      << door.name << ' ' << page.fault.data();
}

// First calls of a process: what they set up may fail, too.
void walk_first_calls(Page& page, const Door& door, int mode) {
  for (long at = 1;; ++at) {
    ASSERT_LT(at, 2000) << door.name << ": no end";
    const int status = status_of_child([&] {
      const long before = scarce_live_blocks();
      if (!fails_well(page, door, at, mode) || !is_right(page, door, at)) return false;
      if (!is_right(page, door, at)) return false;
      // The failed call's text may stay, which a good one does not have.
      const long kept = scarce_live_blocks() - before - page.kept_blocks;
      return kept <= 1 || report(page, door, at, "blocks are lost", kept);
    });
    ASSERT_EQ(status, 0) << door.name << " request " << at << ": " << page.fault.data();
    if (page.refused == 0) return;
  }
}

// Later calls: not a block more than before.
void walk_later_calls(Page& page, const Door& door, int mode) {
  const int status = status_of_child([&] {
    if (!is_right(page, door, 0) || flce_parse_bytes("", nullptr) == FLCE_OK) return false;
    for (long at = 1;; ++at) {
      const long before = scarce_live_blocks();
      if (!fails_well(page, door, at, mode)) return false;
      const long kept = scarce_live_blocks() - before;
      if (kept != 0) return report(page, door, at, "blocks are lost", kept);
      if (!is_right(page, door, at)) return false;
      if (page.refused == 0) return true;
    }
  });
  ASSERT_EQ(status, 0) << door.name << ": " << page.fault.data();
}

class Scarce : public testing::TestWithParam<Door> {};

TEST_P(Scarce, EachRequestRefusedInTurn) {
  Page* const page = shared_page();
  ASSERT_NE(page, nullptr);
  fill_inputs();
  ASSERT_NO_FATAL_FAILURE(learn(*page, GetParam()));
  for (const int mode : {SCARCE_ONCE, SCARCE_FROM}) {
    ASSERT_NO_FATAL_FAILURE(walk_first_calls(*page, GetParam(), mode));
    ASSERT_NO_FATAL_FAILURE(walk_later_calls(*page, GetParam(), mode));
  }
  EXPECT_GT(page->num_out_of_memory, 0);
  ::munmap(page, sizeof *page);
}

INSTANTIATE_TEST_SUITE_P(Doors, Scarce, testing::ValuesIn(kDoors),
                         [](const auto& door) { return std::string(door.param.name); });

TEST(ScarceMemory, TheTextOfAStatusNeedsNoMemory) {
  ASSERT_EQ(status_of_child([] {
              fill_inputs();
              scarce_arm(1, SCARCE_FROM, SCARCE_ALL);
              const flce_status status = c_bad_budget();
              const bool is_said = std::strcmp(flce_last_error(), "out of memory") == 0 &&
                                   std::strcmp(flce_status_name(status), "out_of_memory") == 0;
              const char* refusal = flce_cuda_refusal();
              return scarce_disarm() > 0 && is_said && refusal != nullptr;
            }),
            0);
}

}  // namespace
}  // namespace flce_test
