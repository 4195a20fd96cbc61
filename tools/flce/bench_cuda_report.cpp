// SPDX-License-Identifier: Apache-2.0
#include "bench_cuda_report.hpp"

#include <fmt/core.h>

#include <algorithm>
#include <cmath>
#include <utility>

#include "common.hpp"

namespace flce::cli {
namespace {

using Json = nlohmann::ordered_json;

// Null where nothing was measured. Three digits more than a measurement has.
Json rounded(double value, double per_unit) {
  return value < 0.0 ? Json() : Json(std::round(value * per_unit) / per_unit);
}
Json milliseconds(double seconds) { return rounded(seconds < 0.0 ? -1.0 : 1e3 * seconds, 1e4); }
Json count(std::int64_t value) { return value < 0 ? Json() : Json(value); }
Json error_number(double error) {
  if (error < 0.0) return {};
  return std::isfinite(error) ? Json(error) : Json("inf");
}

// The median of the rounds' ratios: a card's clock drifts from round to round, and what two
// measurements of one round have in common cancels. Negative where there is none.
double ratio(const std::vector<double>& seconds, const std::vector<double>& floor) {
  std::vector<double> ratios;
  for (std::size_t i = 0; i < std::min(seconds.size(), floor.size()); ++i) {
    if (floor[i] > 0.0) ratios.push_back(seconds[i] / floor[i]);
  }
  return median_of(std::move(ratios));
}

// "tf32" is f32 with products of operands that are rounded to 10 bits.
std::string dtype_text(const BenchResult& result) {
  const bool is_tf32 = result.request.allow_tf32 && result.problem.dtype == Dtype::kF32;
  return is_tf32 ? "tf32" : name_of(result.problem.dtype);
}

std::string policy_text(const BenchResult& result, const BenchRow& row) {
  const bool is_liger = row.asked.is_liger || result.request.policy == ChunkPolicy::kLiger;
  return is_liger ? "liger" : "measured";
}

std::string reason_of(const BenchRow& row) {
  if (!row.refused.empty() || row.untimed.empty()) return row.refused;
  return "not timed: " + row.untimed;
}

Json row_values(const BenchResult& result, const BenchRow& row, const Machine& machine,
                const std::string& set) {
  const Problem& p = result.problem;
  const double floor = median_of(result.card.floor_seconds);
  Json values = Json::object();
  values["device"] = result.card.name;
  values["date"] = machine.date;
  values["shape"] = fmt::format("{}x{}x{}", p.tokens, p.hidden, p.vocab);
  values["dtype"] = dtype_text(result);
  values["method"] = row.asked.name();
  values["route"] = name_of(row.route);
  values["chunk"] = row.chunk;
  values["median_ms"] = milliseconds(row.seconds_median());
  values["floor_ms"] = milliseconds(floor);
  values["hard_floor_ms"] = milliseconds(median_of(result.card.hard_floor_seconds));
  values["ratio"] = rounded(ratio(row.seconds, result.card.floor_seconds), 1e4);
  values["extra_bytes"] = count(row.extra_bytes);
  values["peak_bytes"] = count(row.peak_bytes);
  values["predicted_bytes"] = row.predicted_bytes;
  values["err_loss"] = error_number(row.errors.loss);
  values["err_grad_hidden"] = error_number(row.errors.grad_hidden);
  values["err_grad_weight"] = error_number(row.errors.grad_weight);
  values["data"] = name_of(result.data);
  values["set"] = set;
  values["num_chunks"] = row.num_chunks;
  values["predicted_peak_bytes"] = row.predicted_peak_bytes;
  values["device_bytes"] = count(row.device_bytes);
  values["min_ms"] = milliseconds(row.seconds_min());
  values["max_ms"] = milliseconds(row.seconds_max());
  values["rounds"] = row.seconds.size();
  values["watts"] = rounded(row.seconds.empty() ? -1.0 : result.card.watts, 1.0);
  values["sm_mhz"] = rounded(row.seconds.empty() ? -1.0 : result.card.sm_mhz, 1.0);
  values["policy"] = policy_text(result, row);
  values["pays"] = name_of(result.pays);
  values["problem"] = format_problem(p);
  values["version"] = machine.version;
  values["refused"] = reason_of(row);
  return values;
}

std::string or_dash(bool known, const std::string& text) { return known ? text : "-"; }

std::string bytes_text(std::int64_t bytes) {
  return or_dash(bytes >= 0,
                 format_bytes(static_cast<std::uint64_t>(std::max<std::int64_t>(bytes, 0))));
}

std::string error_text(double error) { return or_dash(error >= 0.0, fmt::format("{:.1e}", error)); }

std::vector<std::string> table_cells(const BenchResult& result, const BenchRow& row) {
  const bool is_timed = !row.seconds.empty();
  const auto ratio_text = [&](const std::vector<double>& floor) {
    const double value = ratio(row.seconds, floor);
    return or_dash(value >= 0.0, fmt::format("{:.3f}", value));
  };
  return {row.asked.name(),
          std::to_string(row.chunk),
          std::to_string(row.num_chunks),
          format_bytes(row.predicted_bytes),
          bytes_text(row.extra_bytes),
          format_bytes(row.predicted_peak_bytes),
          bytes_text(row.peak_bytes),
          or_dash(is_timed, format_seconds(row.seconds_median())),
          or_dash(is_timed, format_seconds(row.seconds_min())),
          or_dash(is_timed, format_seconds(row.seconds_max())),
          or_dash(is_timed, fmt::format("{:.0f}", 1e-3 * row.gflops(result.problem))),
          ratio_text(result.card.floor_seconds),
          ratio_text(result.card.hard_floor_seconds),
          error_text(row.errors.loss),
          error_text(row.errors.grad_hidden),
          error_text(row.errors.grad_weight)};
}

std::string card_line(const BenchResult& result, const Machine& machine) {
  const CardFigures& card = result.card;
  std::string text = fmt::format("{}, flce {}, {}, {} data", card.name, machine.version,
                                 machine.date, name_of(result.data));
  if (card.watts >= 0.0) text += fmt::format(", {:.0f} W", card.watts);
  if (card.sm_mhz >= 0.0) text += fmt::format(", SM at {:.0f} MHz", card.sm_mhz);
  text += '\n';
  if (!card.floor_seconds.empty()) {
    text += fmt::format("the three products alone: {}, of their fastest candidates {}\n",
                        format_seconds(median_of(card.floor_seconds)),
                        format_seconds(median_of(card.hard_floor_seconds)));
  }
  if (!card.floor_refused.empty()) text += "no bare products: " + card.floor_refused + "\n";
  if (!card.error_refused.empty()) text += "errors are missing: " + card.error_refused + "\n";
  return text;
}

}  // namespace

std::vector<Json> cuda_rows(const BenchResult& result, const Machine& machine,
                            const std::string& set) {
  std::vector<Json> rows;
  for (const BenchRow& row : result.rows) rows.push_back(row_values(result, row, machine, set));
  return rows;
}

std::string cuda_table(const BenchResult& result, const Machine& machine) {
  Table table({"method", "chunk", "chunks", "predicted", "extra", "predicted peak", "peak",
               "median", "min", "max", "TFLOP/s", "ratio", "to hard", "err loss", "err grad_hidden",
               "err grad_weight"});
  std::string reasons;
  for (const BenchRow& row : result.rows) {
    if (row.refused.empty()) table.add(table_cells(result, row));
    if (!row.refused.empty()) {
      reasons += fmt::format("{} refused: {}\n", row.asked.name(), row.refused);
    } else if (!row.untimed.empty()) {
      reasons += fmt::format("{} not timed: {}\n", row.asked.name(), row.untimed);
    }
  }
  return fmt::format("{}\n{}", format_problem(result.problem, result.request),
                     card_line(result, machine)) +
         table.text() + reasons +
         "predicted: bytes of workspace and saved memory by the plan; extra: their high-water mark "
         "in the run; peak: all that was allocated\non the card, inputs and outputs included; "
         "ratio: to the three products alone, the median of the rounds' ratios; to hard: to their "
         "fastest\ncandidates; errors: relative, against the same problem in float64 on the card\n";
}

}  // namespace flce::cli
