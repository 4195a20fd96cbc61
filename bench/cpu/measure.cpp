// SPDX-License-Identifier: Apache-2.0
#include "measure.hpp"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <limits>
#include <memory>
#include <stdexcept>
#include <thread>

#include "flce/calibrate.hpp"

namespace flce::bench {
namespace {

using Clock = std::chrono::steady_clock;

// A library's idle threads may spin for a while after its last call; they are asleep after this.
constexpr auto kPause = std::chrono::milliseconds(50);

struct Entry {
  std::unique_ptr<System> system;
  double expected_seconds = 0.0;
  std::size_t row = 0;
};

// One case with its data and systems. `rows` of the result are filled by index.
struct Experiment {
  explicit Experiment(const Case& s) : shape(s), workers(s.threads), data(s, workers) {}

  Case shape;
  Workers workers;
  Data data;
  std::vector<Entry> entries;
};

double timed(System& system) {
  std::this_thread::sleep_for(kPause);
  const Clock::time_point start = Clock::now();
  system.run();
  return std::chrono::duration<double>(Clock::now() - start).count();
}

// Short runs are tried until the time means something, long ones once.
double best_of_tries(System& system) {
  double best = std::numeric_limits<double>::infinity();
  double sum = 0.0;
  for (int i = 0; i < 5 && (i == 0 || sum < 0.5); ++i) {
    const double seconds = timed(system);
    sum += seconds;
    best = std::min(best, seconds);
  }
  return best;
}

// The fastest variant stays prepared.
double choose_variant(System& system) {
  int best = 0;
  double best_seconds = std::numeric_limits<double>::infinity();
  for (int i = 0; i < system.num_variants(); ++i) {
    system.prepare(i);
    const double seconds = best_of_tries(system);
    std::fprintf(stderr, "  %s chunk %lld: %.1f ms\n", system.facts().system.c_str(),
                 static_cast<long long>(system.facts().chunk), seconds * 1e3);
    if (seconds < best_seconds) {
      best_seconds = seconds;
      best = i;
    }
  }
  if (system.num_variants() > 1) {
    system.prepare(best);
    if (best_seconds < 5.0) system.run();
  }
  return best_seconds;
}

void check(const Case& shape, const SystemFacts& facts, const Differences& seen) {
  const bool wide = shape.dtype == Dtype::kF32;
  const double loss_limit = wide ? 2e-6 : 1e-4;
  const double gradient_limit = wide ? 2e-5 : 2e-2;
  if (seen.loss <= loss_limit && seen.grad_hidden <= gradient_limit &&
      seen.grad_weight <= gradient_limit) {
    return;
  }
  char text[256];
  std::snprintf(text, sizeof text,
                "%s disagrees with ours: loss %.2e (limit %.0e), grad_hidden %.2e, "
                "grad_weight %.2e (limit %.0e)",
                facts.system.c_str(), seen.loss, loss_limit, seen.grad_hidden, seen.grad_weight,
                gradient_limit);
  throw std::runtime_error(text);
}

void note_missing(std::vector<std::string>& missing, const std::string& text) {
  if (std::find(missing.begin(), missing.end(), text) == missing.end()) missing.push_back(text);
}

// Makes the systems, chooses their variants and holds their results against ours. The copy of our
// results goes before the rounds begin.
void set_up(Experiment& experiment, const Settings& settings, std::vector<Row>& rows,
            std::vector<std::string>& missing) {
  std::unique_ptr<Reference> reference;
  for (const std::string& name : settings.systems) {
    std::string refusal;
    Entry entry;
    entry.system = make_system(name, experiment.shape, experiment.data, experiment.workers,
                               settings.onednn_isa, refusal);
    if (entry.system == nullptr) {
      note_missing(missing, name + " (" + name_of(experiment.shape.dtype) + "): " + refusal);
      continue;
    }
    entry.expected_seconds = choose_variant(*entry.system);
    Row row;
    row.shape = experiment.shape;
    row.facts = entry.system->facts();
    if (reference == nullptr) {
      reference = std::make_unique<Reference>(experiment.shape, experiment.data);
    } else {
      row.differences = reference->against(experiment.shape, experiment.data, experiment.workers);
      check(experiment.shape, row.facts, row.differences);
    }
    entry.row = rows.size();
    rows.push_back(std::move(row));
    experiment.entries.push_back(std::move(entry));
  }
}

// The order of the systems turns by one each round: nobody always follows the same neighbour.
void run_round(Experiment& experiment, int round, std::vector<Row>& rows) {
  const std::size_t count = experiment.entries.size();
  const double peak = measure_matmul_flops(experiment.shape.dtype, experiment.shape.threads);
  for (std::size_t i = 0; i < count; ++i) {
    Entry& entry = experiment.entries[(i + static_cast<std::size_t>(round)) % count];
    rows[entry.row].seconds.push_back(timed(*entry.system));
    rows[entry.row].peak_flops.push_back(peak);
  }
  const double ours = rows[experiment.entries.front().row].seconds.back();
  for (const Entry& entry : experiment.entries) {
    Row& row = rows[entry.row];
    row.ours_seconds.push_back(ours);
    row.ratios.push_back(row.seconds.back() / ours);
  }
}

}  // namespace

double median(std::vector<double> values) {
  if (values.empty()) return NAN;
  std::sort(values.begin(), values.end());
  const std::size_t half = values.size() / 2;
  return values.size() % 2 == 1 ? values[half] : (values[half - 1] + values[half]) / 2.0;
}

std::vector<Row> measure(const std::vector<Case>& cases, const Settings& settings,
                         std::vector<std::string>& missing) {
  std::vector<Row> rows;
  std::vector<std::unique_ptr<Experiment>> experiments;
  double round_seconds = 0.0;
  for (const Case& shape : cases) {
    std::fprintf(stderr, "%lldx%lldx%lld %s, %d threads\n", static_cast<long long>(shape.tokens),
                 static_cast<long long>(shape.hidden), static_cast<long long>(shape.vocab),
                 name_of(shape.dtype), shape.threads);
    experiments.push_back(std::make_unique<Experiment>(shape));
    set_up(*experiments.back(), settings, rows, missing);
    for (const Entry& entry : experiments.back()->entries) {
      round_seconds += entry.expected_seconds + 0.05;
    }
  }
  const int rounds = std::clamp(static_cast<int>(settings.seconds / round_seconds),
                                settings.min_rounds, settings.max_rounds);
  std::fprintf(stderr, "  %d rounds of about %.1f s\n", rounds, round_seconds);
  for (int round = 0; round < rounds; ++round) {
    for (const auto& experiment : experiments) run_round(*experiment, round, rows);
  }
  return rows;
}

}  // namespace flce::bench
