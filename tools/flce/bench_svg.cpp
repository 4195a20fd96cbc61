// SPDX-License-Identifier: Apache-2.0
#include "bench_svg.hpp"

#include <fmt/core.h>

#include <algorithm>
#include <functional>
#include <vector>

#include "bench_plot.hpp"

namespace flce::cli {
namespace {

struct Colors {
  const char* light;
  const char* dark;
};

// Colours that stay apart for colour-blind readers (Okabe and Ito), lighter for dark pages.
Colors colors_of(const BenchMethod& asked) {
  if (asked.is_liger) return {"#56b4e9", "#a6d8f5"};
  if (asked.is_forward) return {"#b8860b", "#e0c050"};
  switch (asked.method) {
    case Method::kNaive:
      return {"#000000", "#f0f0f0"};
    case Method::kChunked:
      return {"#d55e00", "#ff8c3a"};
    case Method::kFused:
      return {"#0072b2", "#56b4e9"};
    case Method::kRecompute:
      return {"#009e73", "#2fd6a8"};
    case Method::kNaiveEager:
      return {"#8c8c8c", "#8c8c8c"};
    default:
      return {"#cc79a7", "#e6a5c8"};
  }
}

// Puts a row's numbers into a line.
using Place = std::function<void(const BenchRow&, PlotLine&)>;

std::vector<PlotLine> lines_of(const BenchResult& result, const Place& place) {
  std::vector<PlotLine> lines;
  for (const BenchRow& row : result.rows) {
    if (!row.refused.empty()) continue;
    const std::string name = row.asked.name();
    auto found = std::find_if(lines.begin(), lines.end(),
                              [&](const PlotLine& line) { return line.name == name; });
    if (found == lines.end()) {
      const Colors colors = colors_of(row.asked);
      const Method method = row.asked.method;
      const bool is_whole = method == Method::kNaive || method == Method::kNaiveEager;
      found = lines.insert(lines.end(), {name, colors.light, colors.dark, {}, {}, is_whole});
    }
    place(row, *found);
  }
  for (PlotLine& line : lines) {
    for (auto* points : {&line.predicted, &line.measured}) {
      std::sort(points->begin(), points->end(),
                [](const PlotPoint& a, const PlotPoint& b) { return a.x < b.x; });
    }
  }
  return lines;
}

std::string footer_of(const Machine& machine) {
  if (!machine.card.empty()) {
    return fmt::format("{}, flce {}, {}", machine.card, machine.version, machine.date);
  }
  return fmt::format("{}, {}, {} threads, flce {}, {}", machine.cpu_model, machine.isa,
                     machine.threads, machine.version, machine.date);
}

}  // namespace

std::string memory_svg(const BenchResult& result, const Machine& machine) {
  Plot plot;
  plot.title = "Peak memory of the loss step against the number of chunks";
  plot.subtitle = format_problem(result.problem);
  plot.x_label = "number of chunks";
  plot.y_label = "memory, inputs and gradients included";
  plot.footer = footer_of(machine);
  plot.unit = PlotUnit::kBytes;
  plot.lines = lines_of(result, [](const BenchRow& row, PlotLine& line) {
    const auto x = static_cast<double>(row.num_chunks);
    line.predicted.push_back({x, static_cast<double>(row.predicted_peak_bytes), 0.0, 0.0});
    if (row.measured()) line.measured.push_back({x, static_cast<double>(row.peak_bytes), 0.0, 0.0});
  });
  for (const BenchRow& row : result.rows) {
    if (!row.refused.empty()) continue;
    const auto floor = static_cast<double>(row.predicted_peak_bytes - row.predicted_bytes);
    plot.lines.push_back(
        {"inputs and gradients", "#b1b8c0", "#484f58", {{1.0, floor, 0.0, 0.0}}, {}, true});
    break;
  }
  return plot_svg(plot);
}

std::string time_svg(const BenchResult& result, const Machine& machine) {
  Plot plot;
  plot.title = "Time of the loss step against the size of a chunk";
  plot.subtitle = format_problem(result.problem);
  plot.x_label = "tokens of a chunk";
  plot.y_label = "time of loss and gradients";
  plot.footer = footer_of(machine);
  plot.unit = PlotUnit::kSeconds;
  plot.lines = lines_of(result, [](const BenchRow& row, PlotLine& line) {
    const auto x = static_cast<double>(std::max<std::int64_t>(row.chunk, 1));
    if (row.predicted_seconds > 0.0) {
      line.predicted.push_back({x, row.predicted_seconds, 0.0, 0.0});
    }
    if (row.seconds.empty()) return;
    line.measured.push_back({x, row.seconds_median(), row.seconds_min(), row.seconds_max()});
  });
  return plot_svg(plot);
}

}  // namespace flce::cli
