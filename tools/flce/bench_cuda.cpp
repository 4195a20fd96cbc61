// SPDX-License-Identifier: Apache-2.0
#include "bench_cuda.hpp"

#include <fmt/core.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "bench_card.hpp"
#include "bench_cuda_error.hpp"
#include "bench_cuda_memory.hpp"
#include "bench_order.hpp"
#include "common.hpp"
#include "device_memory.hpp"
#include "run_outputs.hpp"
#include "run_step.hpp"

namespace flce::cli {
namespace {

using Clock = std::chrono::steady_clock;
using FloorKind = FloorProducts::Kind;

// One measurement takes at least this long, in several calls where one is shorter: what starting
// work costs the host is then hidden, as it is in training.
constexpr double kShortestMeasurement = 5e-3;
constexpr int kMostCalls = 64;

// What is timed in a round: a variant or a floor.
struct Timed {
  std::function<void()> call;  // gives its work to the stream
  std::vector<double>* seconds = nullptr;
  int calls = 1;  // of one measurement
};

// Some of `before`'s work, where there is one, stands on the stream just ahead and is not timed.
double seconds_of(const Timed& timed, const CudaStream& stream, const Timed* before = nullptr) {
  CudaTimer timer;
  if (before != nullptr) {
    for (int i = 0; i < before->calls; ++i) before->call();
  }
  timer.start(stream.handle());
  for (int i = 0; i < timed.calls; ++i) timed.call();
  timer.stop(stream.handle());
  return timer.seconds() / timed.calls;
}

// Memory that all variants use in turn while they are timed.
class SharedCudaMemory {
 public:
  // Leaves out the largest variants where the card has no room for them beside the floor's logits.
  SharedCudaMemory(const Problem& problem, std::vector<Variant*>& variants) {
    while (!variants.empty()) {
      try {
        if (!outputs_) outputs_ = std::make_unique<CudaOutputs>(problem);
        workspace_ = DeviceMemory(largest(variants, &Plan::workspace_bytes));
        saved_ = DeviceMemory(largest(variants, &Plan::saved_bytes));
        return;
      } catch (const Error& error) {
        if (!lacks_room(error)) throw;
        workspace_ = DeviceMemory();
        const auto most = std::max_element(variants.begin(), variants.end(), needs_less);
        (*most)->row.untimed = error.what();
        variants.erase(most);
      }
    }
  }

  void execute(const Plan& plan, const Inputs& inputs, const CudaStream& stream) {
    cli::execute(plan, inputs, wanted_of(plan.problem, outputs_->views()), workspace_.span(),
                 saved_.span(), {.stream = stream.handle()});
  }

 private:
  static bool needs_less(const Variant* a, const Variant* b) {
    return a->plan.extra_bytes < b->plan.extra_bytes;
  }
  static std::uint64_t largest(const std::vector<Variant*>& variants, std::uint64_t Plan::*field) {
    std::uint64_t bytes = 0;
    for (const Variant* variant : variants) bytes = std::max(bytes, variant->plan.*field);
    return bytes;
  }

  std::unique_ptr<CudaOutputs> outputs_;
  DeviceMemory workspace_;
  DeviceMemory saved_;
};

// One run of the whole measurement.
class CudaBench {
 public:
  CudaBench(const BenchSettings& settings, const BenchProgress& on_progress)
      : settings_(settings), on_progress_(on_progress), variants_(plan_variants(settings)) {}

  BenchResult run();

 private:
  void advance(const std::string& what) { on_progress_(done_++, all_, what); }
  std::vector<Variant*> runnable();
  void measure_memory(const Inputs& inputs);
  void measure_times(const Inputs& inputs);
  std::unique_ptr<FloorProducts> make_floor(const Inputs& inputs);
  void warm_up(const Timed& work);
  void time_rounds(std::vector<Timed>& all, bool has_floor);
  void measure_errors(const Inputs& inputs);

  const BenchSettings& settings_;
  const BenchProgress& on_progress_;
  std::vector<Variant> variants_;
  CudaStream stream_;
  std::unique_ptr<ProblemData> data_;
  BenchResult result_;
  std::int64_t done_ = 0;
  std::int64_t all_ = 0;
};

std::vector<Variant*> CudaBench::runnable() {
  std::vector<Variant*> found;
  for (Variant& variant : variants_) {
    if (variant.row.runnable) found.push_back(&variant);
  }
  return found;
}

void CudaBench::measure_memory(const Inputs& inputs) {
  for (Variant* variant : runnable()) {
    advance(fmt::format("memory of {} chunk {}", variant->row.asked.name(), variant->row.chunk));
    measure_cuda_memory(*variant, inputs, *data_, stream_);
  }
}

std::unique_ptr<FloorProducts> CudaBench::make_floor(const Inputs& inputs) {
  if (!settings_.measure_floor) return nullptr;
  try {
    return std::make_unique<FloorProducts>(inputs.hidden, inputs.weight,
                                           settings_.text.request.allow_tf32);
  } catch (const Error& error) {
    result_.card.floor_refused = error.what();
    return nullptr;
  }
}

// A card that has just been idle runs faster than it can go on running.
void CudaBench::warm_up(const Timed& work) {
  const Clock::time_point end =
      Clock::now() + std::chrono::duration_cast<Clock::duration>(
                         std::chrono::duration<double>(settings_.warm_seconds));
  while (Clock::now() < end) seconds_of(work, stream_);
}

// A card at its power limit runs faster just after work that mostly moves memory: the usual floor
// of 4096x4096x128256 took 16.1 ms on an H200 where it always came after chunks of 128 rows, and 18
// to 19 ms in another order. So each measurement comes right after the same work, the usual floor's
// products (without floors: the variant's own), and each round has an order of its own, so that
// what stood before that evens out.
void CudaBench::time_rounds(std::vector<Timed>& all, bool has_floor) {
  for (Timed& timed : all) {
    // The first call may load code.
    const double first = seconds_of(timed, stream_);
    const double once = std::max(std::min(first, seconds_of(timed, stream_)), 1e-6);
    timed.calls =
        std::clamp(static_cast<int>(std::ceil(kShortestMeasurement / once)), 1, kMostCalls);
  }
  CardMonitor monitor(cuda_current_device());
  warm_up(all.front());
  monitor.resume();
  for (std::int64_t round = -settings_.warmup; round < settings_.rounds; ++round) {
    advance(fmt::format("round {}", round + settings_.warmup + 1));
    for (const std::size_t i : shuffled_order(all.size(), settings_.data.seed, round)) {
      const Timed& timed = all[i];
      const double seconds = seconds_of(timed, stream_, has_floor ? &all.front() : &timed);
      if (round >= 0) timed.seconds->push_back(seconds);
    }
  }
  monitor.pause();
  const CardSample sample = monitor.finish();
  result_.card.watts = sample.watts;
  result_.card.sm_mhz = sample.sm_mhz;
}

void CudaBench::measure_times(const Inputs& inputs) {
  std::vector<Variant*> variants = runnable();
  if (variants.empty() || settings_.rounds == 0) return;
  advance("the bare products");
  const std::unique_ptr<FloorProducts> floor = make_floor(inputs);
  SharedCudaMemory memory(settings_.text.problem, variants);
  std::vector<Timed> all;
  if (floor) {
    const auto add = [&](FloorKind kind, std::vector<double>& seconds) {
      all.push_back({[&, kind] { floor->run(kind, stream_.handle()); }, &seconds});
    };
    add(FloorKind::kUsual, result_.card.floor_seconds);  // the first: stands before all others
    add(FloorKind::kHard, result_.card.hard_floor_seconds);
  }
  for (Variant* variant : variants) {
    all.push_back(
        {[&, variant] { memory.execute(variant->plan, inputs, stream_); }, &variant->row.seconds});
  }
  if (!all.empty()) time_rounds(all, floor != nullptr);
}

void CudaBench::measure_errors(const Inputs& inputs) {
  advance("the float64 reference");
  std::unique_ptr<CudaReference> reference;
  try {
    reference =
        std::make_unique<CudaReference>(settings_.text.problem, *data_, settings_.caps, stream_);
  } catch (const Error& error) {
    result_.card.error_refused = error.what();
    return;
  }
  result_.sampled_tokens = settings_.text.problem.tokens;
  for (Variant* variant : runnable()) {
    advance(fmt::format("errors of {} chunk {}", variant->row.asked.name(), variant->row.chunk));
    try {
      CudaStep step(variant->plan);
      step.load_starts(*data_);
      step.execute(inputs, stream_);
      variant->row.errors = reference->errors_of(step.outputs());
    } catch (const Error& error) {
      if (!lacks_room(error)) throw;
      result_.card.error_refused = fmt::format("{}, beside the float64 reference: {}",
                                               variant->row.asked.name(), error.what());
    }
  }
}

BenchResult CudaBench::run() {
  const auto count = static_cast<std::int64_t>(runnable().size());
  all_ = 1 + count + (settings_.rounds > 0 ? 1 + settings_.warmup + settings_.rounds : 0) +
         (settings_.measure_error ? 1 + count : 0);
  result_.problem = settings_.text.problem;
  result_.request = settings_.text.request;
  result_.rounds = settings_.rounds;
  result_.data = settings_.data.kind;
  AdviceRequest advice;
  advice.model = settings_.model ? &*settings_.model : nullptr;
  result_.pays =
      judge(plan_report(settings_.text.problem, settings_.caps, settings_.text.request), advice)
          .pays;
  result_.card.name = cuda_devices()[static_cast<std::size_t>(cuda_current_device())].name;
  if (count > 0) {
    advance("random data");
    data_ = std::make_unique<ProblemData>(settings_.text.problem, settings_.data);
    DeviceTensors inputs(runnable().front()->plan);
    inputs.bind(data_->inputs(), {});
    inputs.upload();
    measure_memory(inputs.inputs());
    measure_times(inputs.inputs());
    if (settings_.measure_error && !runnable().empty()) measure_errors(inputs.inputs());
  }
  for (Variant& variant : variants_) result_.rows.push_back(std::move(variant.row));
  return std::move(result_);
}

}  // namespace

BenchResult run_cuda_bench(const BenchSettings& settings, const BenchProgress& on_progress) {
  return CudaBench(settings, on_progress).run();
}

}  // namespace flce::cli
