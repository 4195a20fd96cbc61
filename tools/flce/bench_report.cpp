// SPDX-License-Identifier: Apache-2.0
#include "bench_report.hpp"

#include <fmt/chrono.h>
#include <fmt/core.h>

#include <algorithm>
#include <ctime>
#include <fstream>
#include <vector>

#include "common.hpp"

namespace flce::cli {
namespace {

using Json = nlohmann::ordered_json;

// One row as JSON values, null where nothing was measured; CSV and JSON are both made from it.
Json row_values(const BenchResult& result, const BenchRow& row) {
  const Problem& p = result.problem;
  const auto number = [](double value) { return value < 0.0 ? Json() : Json(value); };
  const auto seen = [&](std::uint64_t bytes) { return row.measured ? Json(bytes) : Json(); };
  Json values;
  values["method"] = name_of(row.method);
  values["chunk"] = row.chunk;
  values["num_chunks"] = row.num_chunks;
  values["tokens"] = p.tokens;
  values["hidden"] = p.hidden;
  values["vocab"] = p.vocab;
  values["dtype"] = name_of(p.dtype);
  values["gemms"] = row.gemms;
  values["workspace_bytes"] = row.workspace_bytes;
  values["saved_bytes"] = row.saved_bytes;
  values["extra_bytes"] = row.extra_bytes;
  values["used_bytes"] = seen(row.used_bytes);
  values["rss_bytes"] = row.rss_bytes < 0 ? Json() : Json(row.rss_bytes);
  values["peak_bytes"] = row.peak_bytes;
  values["rounds"] = row.seconds.size();
  values["seconds_median"] = number(row.seconds_median());
  values["seconds_min"] = number(row.seconds_min());
  values["seconds_max"] = number(row.seconds_max());
  values["gflops"] = number(row.gflops(p));
  values["ratio_to_naive"] = number(result.ratio_to_naive(row));
  values["loss"] = row.measured ? Json(row.loss) : Json();
  values["loss_error"] = number(row.errors.loss);
  values["grad_hidden_error"] = number(row.errors.grad_hidden);
  values["grad_weight_error"] = number(row.errors.grad_weight);
  values["sampled_tokens"] = row.errors.loss < 0.0 ? Json() : Json(result.sampled_tokens);
  values["refused"] = row.refused.empty() ? Json() : Json(row.refused);
  return values;
}

void add_machine(Json& values, const Machine& machine) {
  values["cpu_model"] = machine.cpu_model;
  values["isa"] = machine.isa;
  values["threads"] = machine.threads;
  values["version"] = machine.version;
  values["date"] = machine.date;
}

// Quotes where a comma or a quote would break the line.
std::string csv_field(const Json& value) {
  if (value.is_null()) return "";
  if (!value.is_string()) return value.dump();
  const auto text = value.get<std::string>();
  if (text.find_first_of(",\"\n") == std::string::npos) return text;
  std::string quoted = "\"";
  for (const char c : text) {
    if (c == '"') quoted += '"';
    quoted += c;
  }
  return quoted + '"';
}

std::string or_dash(bool known, const std::string& text) { return known ? text : "-"; }

std::string error_text(double error) { return or_dash(error >= 0.0, fmt::format("{:.1e}", error)); }

std::vector<std::string> table_cells(const BenchResult& result, const BenchRow& row) {
  const bool timed = !row.seconds.empty();
  const double ratio = result.ratio_to_naive(row);
  const auto rss = static_cast<std::uint64_t>(std::max<std::int64_t>(row.rss_bytes, 0));
  return {name_of(row.method),
          std::to_string(row.chunk),
          std::to_string(row.num_chunks),
          format_bytes(row.extra_bytes),
          or_dash(row.measured, format_bytes(row.used_bytes)),
          or_dash(row.rss_bytes >= 0, format_bytes(rss)),
          or_dash(timed, format_seconds(row.seconds_median())),
          or_dash(timed, format_seconds(row.seconds_min())),
          or_dash(timed, format_seconds(row.seconds_max())),
          or_dash(timed, fmt::format("{:.1f}", row.gflops(result.problem))),
          or_dash(ratio >= 0.0, fmt::format("{:.3f}", ratio)),
          error_text(row.errors.loss),
          error_text(row.errors.grad_hidden),
          error_text(row.errors.grad_weight)};
}

}  // namespace

Machine machine_facts(const DeviceCaps& caps) {
  Machine machine;
  machine.cpu_model = "unknown";
  std::ifstream file("/proc/cpuinfo");
  for (std::string line; std::getline(file, line);) {
    const std::size_t colon = line.find(": ");
    if (line.rfind("model name", 0) != 0 || colon == std::string::npos) continue;
    machine.cpu_model = line.substr(colon + 2);
    break;
  }
  machine.isa = cpu_isa();
  machine.threads = caps.num_threads;
  machine.version = version();
  machine.date = fmt::format("{:%Y-%m-%dT%H:%M:%SZ}", fmt::gmtime(std::time(nullptr)));
  return machine;
}

std::string bench_table(const BenchResult& result, const Machine& machine) {
  Table table({"method", "chunk", "chunks", "predicted", "used", "rss", "median", "min", "max",
               "GFLOP/s", "ratio", "loss err", "grad_hidden err", "grad_weight err"});
  std::string refusals;
  for (const BenchRow& row : result.rows) {
    if (row.refused.empty()) {
      table.add(table_cells(result, row));
    } else {
      refusals += fmt::format("{} refused: {}\n", name_of(row.method), row.refused);
    }
  }
  std::string text =
      fmt::format("{}\n{}, {}, {} threads, flce {}, {}\n", format_problem(result.problem),
                  machine.cpu_model, machine.isa, machine.threads, machine.version, machine.date);
  text += table.text() + refusals;
  text +=
      "predicted: extra_bytes of the plan; used: high-water mark of the run; rss: growth of the "
      "resident set in a process of its own\nratio: to naive's median";
  if (result.sampled_tokens > 0) {
    text += fmt::format("; errors: relative, against float64, {} of {} tokens",
                        result.sampled_tokens, result.problem.tokens);
  }
  return text + "\n";
}

std::string bench_csv(const BenchResult& result, const Machine& machine) {
  std::string header;
  std::string lines;
  for (const BenchRow& row : result.rows) {
    Json values;
    values["problem"] = format_problem(result.problem);
    values.update(row_values(result, row));
    add_machine(values, machine);
    std::string line;
    header.clear();
    for (const auto& [key, value] : values.items()) {
      header += (header.empty() ? "" : ",") + key;
      if (!line.empty()) line += ',';
      line += csv_field(value);
    }
    lines += line + "\n";
  }
  return header + "\n" + lines;
}

Json bench_json(const BenchResult& result, const Machine& machine) {
  Json document;
  document["problem"] = format_problem(result.problem);
  add_machine(document, machine);
  document["rows"] = Json::array();
  for (const BenchRow& row : result.rows) {
    Json values = row_values(result, row);
    values["seconds"] = row.seconds;
    document["rows"].push_back(std::move(values));
  }
  return document;
}

}  // namespace flce::cli
