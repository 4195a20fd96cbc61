// SPDX-License-Identifier: Apache-2.0
#include "bench_report.hpp"

#include <fmt/core.h>

#include <algorithm>
#include <cmath>
#include <vector>

#include "calibration.hpp"
#include "common.hpp"

namespace flce::cli {
namespace {

using Json = nlohmann::ordered_json;

Json number(double value) { return value < 0.0 ? Json() : Json(value); }
// As many decimals as a measurement has.
Json rounded(double value, double per_unit) {
  return number(value < 0.0 ? value : std::round(value * per_unit) / per_unit);
}
Json count(std::int64_t value) { return value < 0 ? Json() : Json(value); }
double milliseconds(double seconds) { return seconds < 0.0 ? -1.0 : 1e3 * seconds; }

// Null where nothing was measured.
void add_measured(Json& values, const BenchResult& result, const BenchRow& row) {
  values["median_ms"] = rounded(milliseconds(row.seconds_median()), 1e4);
  values["min_ms"] = rounded(milliseconds(row.seconds_min()), 1e4);
  values["max_ms"] = rounded(milliseconds(row.seconds_max()), 1e4);
  values["predicted_ms"] =
      rounded(row.predicted_seconds > 0.0 ? 1e3 * row.predicted_seconds : -1.0, 1e4);
  values["rounds"] = row.seconds.size();
  values["gflops"] = rounded(row.gflops(result.problem), 1e2);
  values["share_of_peak"] = rounded(result.share_of_peak(row), 1e4);
  values["ratio_to_naive"] = rounded(result.ratio_to_naive(row), 1e4);
  values["extra_bytes"] = count(row.extra_bytes);
  values["predicted_bytes"] = row.predicted_bytes;
  values["peak_bytes"] = count(row.peak_bytes);
  values["predicted_peak_bytes"] = row.predicted_peak_bytes;
  values["rss_bytes"] = count(row.rss_bytes);
  values["loss"] = row.measured() ? Json(row.loss) : Json();
  values["err_loss"] = number(row.errors.loss);
  values["err_grad_hidden"] = number(row.errors.grad_hidden);
  values["err_grad_weight"] = number(row.errors.grad_weight);
  values["sampled_tokens"] = row.errors.loss < 0.0 ? Json() : Json(result.sampled_tokens);
  values["refused"] = row.refused.empty() ? Json() : Json(row.refused);
}

void add_machine(Json& values, const BenchResult& result, const Machine& machine) {
  values["peak_gflops"] = rounded(1e-9 * result.figures.matmul_flops, 1e1);
  values["bandwidth_gbs"] = rounded(1e-9 * result.figures.bandwidth_bytes, 1e1);
  values["cpu_model"] = machine.cpu_model;
  values["isa"] = machine.isa;
  values["threads"] = machine.threads;
  values["version"] = machine.version;
  values["date"] = machine.date;
}

// CSV and JSON are both made from it.
Json row_values(const BenchResult& result, const BenchRow& row, const Machine& machine) {
  const Problem& p = result.problem;
  Json values = Json::object();
  values["problem"] = format_problem(p);
  values["method"] = row.asked.name();
  values["chunk"] = row.chunk;
  values["num_chunks"] = row.num_chunks;
  values["tokens"] = p.tokens;
  values["hidden"] = p.hidden;
  values["vocab"] = p.vocab;
  values["dtype"] = name_of(p.dtype);
  values["gemms"] = row.gemms;
  add_measured(values, result, row);
  add_machine(values, result, machine);
  return values;
}

std::string or_dash(bool known, const std::string& text) { return known ? text : "-"; }

std::string error_text(double error) { return or_dash(error >= 0.0, fmt::format("{:.1e}", error)); }

std::string bytes_text(std::int64_t bytes) {
  return or_dash(bytes >= 0,
                 format_bytes(static_cast<std::uint64_t>(std::max<std::int64_t>(bytes, 0))));
}

std::vector<std::string> table_cells(const BenchResult& result, const BenchRow& row) {
  const bool timed = !row.seconds.empty();
  const double ratio = result.ratio_to_naive(row);
  const double share = result.share_of_peak(row);
  return {row.asked.name(),
          std::to_string(row.chunk),
          std::to_string(row.num_chunks),
          format_bytes(row.predicted_bytes),
          bytes_text(row.extra_bytes),
          bytes_text(row.peak_bytes),
          bytes_text(row.rss_bytes),
          format_seconds(row.predicted_seconds),
          or_dash(timed, format_seconds(row.seconds_median())),
          or_dash(timed, format_seconds(row.seconds_min())),
          or_dash(timed, format_seconds(row.seconds_max())),
          or_dash(timed, fmt::format("{:.1f}", row.gflops(result.problem))),
          or_dash(share >= 0.0, fmt::format("{:.1f}%", 100.0 * share)),
          or_dash(ratio >= 0.0, fmt::format("{:.3f}", ratio)),
          error_text(row.errors.loss),
          error_text(row.errors.grad_hidden),
          error_text(row.errors.grad_weight)};
}

}  // namespace

Machine machine_facts(const DeviceCaps& caps) {
  Machine machine;
  machine.cpu_model = cpu_model();
  machine.isa = cpu_isa();
  machine.threads = caps.num_threads;
  machine.version = version();
  machine.date = date_now();
  return machine;
}

std::string bench_table(const BenchResult& result, const Machine& machine) {
  Table table({"method", "chunk", "chunks", "predicted", "extra", "peak", "rss", "expected",
               "median", "min", "max", "GFLOP/s", "of peak", "ratio", "err loss", "err grad_hidden",
               "err grad_weight"});
  std::string refusals;
  for (const BenchRow& row : result.rows) {
    if (row.refused.empty()) {
      table.add(table_cells(result, row));
    } else {
      refusals += fmt::format("{} refused: {}\n", row.asked.name(), row.refused);
    }
  }
  std::string text =
      fmt::format("{}\n{}, {}, {} threads, flce {}, {}\n", format_problem(result.problem),
                  machine.cpu_model, machine.isa, machine.threads, machine.version, machine.date);
  if (result.figures.matmul_flops > 0.0) {
    text += fmt::format("measured peak {:.1f} GFLOP/s of multiply-adds, {:.1f} GB/s from memory\n",
                        1e-9 * result.figures.matmul_flops, 1e-9 * result.figures.bandwidth_bytes);
  }
  text += table.text() + refusals;
  text +=
      "predicted: bytes of workspace and saved memory by the plan; extra: their high-water mark in "
      "the run; peak: inputs and outputs, too;\nrss: growth of the resident set in a process of "
      "its "
      "own; expected: the plan's time for a machine of this peak; ratio: to naive's median";
  if (result.sampled_tokens > 0) {
    text += fmt::format(";\nerrors: relative, against float64, {} of {} tokens",
                        result.sampled_tokens, result.problem.tokens);
  }
  return text + "\n";
}

std::vector<Json> bench_rows(const BenchResult& result, const Machine& machine) {
  std::vector<Json> rows;
  for (const BenchRow& row : result.rows) rows.push_back(row_values(result, row, machine));
  return rows;
}

}  // namespace flce::cli
