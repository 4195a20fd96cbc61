// SPDX-License-Identifier: Apache-2.0
#include "bench_svg.hpp"

#include <fmt/core.h>

#include <algorithm>
#include <cmath>
#include <string_view>
#include <vector>

namespace flce::cli {
namespace {

constexpr double kWidth = 880.0;
constexpr double kHeight = 520.0;
constexpr double kLeft = 110.0;
constexpr double kRight = 710.0;  // the legend stands right of it
constexpr double kTop = 70.0;
constexpr double kBottom = 440.0;

struct Series {
  Method method = Method::kAuto;
  std::vector<const BenchRow*> rows;  // by number of chunks
};

// Colours that stay apart for colour-blind readers (Okabe and Ito).
const char* color_of(Method method) {
  switch (method) {
    case Method::kNaive:
      return "#000000";
    case Method::kChunked:
      return "#D55E00";
    case Method::kFused:
      return "#0072B2";
    case Method::kRecompute:
      return "#009E73";
    case Method::kNaiveEager:
      return "#999999";
    default:
      return "#E69F00";
  }
}

std::string escaped(std::string_view text) {
  std::string safe;
  for (const char c : text) {
    if (c == '&')
      safe += "&amp;";
    else if (c == '<')
      safe += "&lt;";
    else if (c == '>')
      safe += "&gt;";
    else
      safe += c;
  }
  return safe;
}

std::vector<Series> series_of(const BenchResult& result) {
  std::vector<Series> all;
  for (const BenchRow& row : result.rows) {
    if (!row.refused.empty()) continue;
    auto found = std::find_if(all.begin(), all.end(),
                              [&](const Series& s) { return s.method == row.method; });
    if (found == all.end()) found = all.insert(all.end(), {row.method, {}});
    found->rows.push_back(&row);
  }
  for (Series& series : all) {
    std::sort(series.rows.begin(), series.rows.end(),
              [](const BenchRow* a, const BenchRow* b) { return a->num_chunks < b->num_chunks; });
  }
  return all;
}

bool is_level(Method method) { return method == Method::kNaive || method == Method::kNaiveEager; }

// The smallest of 1, 2, 2.5, 5 times a power of ten that leaves at most six steps.
double nice_step(double largest) {
  const double power = std::pow(10.0, std::floor(std::log10(std::max(largest, 1.0) / 6.0)));
  for (const double factor : {1.0, 2.0, 2.5, 5.0, 10.0}) {
    if (power * factor * 6.0 >= largest) return power * factor;
  }
  return power * 10.0;
}

// Steps are round numbers, so that a few digits say all.
std::string axis_bytes(double bytes) {
  if (bytes >= 1e9) return fmt::format("{:.4g} GB", bytes / 1e9);
  if (bytes >= 1e6) return fmt::format("{:.4g} MB", bytes / 1e6);
  if (bytes >= 1e3) return fmt::format("{:.4g} kB", bytes / 1e3);
  return fmt::format("{:.4g}", bytes);
}

class Chart {
 public:
  explicit Chart(const BenchResult& result) {
    for (const BenchRow& row : result.rows) {
      if (!row.refused.empty()) continue;
      largest_bytes_ = std::max({largest_bytes_, static_cast<double>(row.extra_bytes),
                                 static_cast<double>(row.used_bytes)});
      most_chunks_ = std::max(most_chunks_, static_cast<double>(row.num_chunks));
    }
    step_ = nice_step(largest_bytes_);
    top_bytes_ = step_ * std::max(1.0, std::ceil(largest_bytes_ / step_));
  }

  double x(double chunks) const {
    const double share = std::log2(std::max(chunks, 1.0)) / std::max(std::log2(most_chunks_), 1.0);
    return kLeft + share * (kRight - kLeft);
  }
  double y(double bytes) const { return kBottom - bytes / top_bytes_ * (kBottom - kTop); }

  std::string axes() const;
  std::string line(const Series& series) const;
  std::string dots(const Series& series) const;

 private:
  double largest_bytes_ = 1.0;
  double most_chunks_ = 1.0;
  double step_ = 1.0;
  double top_bytes_ = 1.0;
};

std::string text_at(double x, double y, const char* anchor, const std::string& text,
                    const char* more = "") {
  return fmt::format("<text x=\"{:.1f}\" y=\"{:.1f}\" text-anchor=\"{}\"{}>{}</text>\n", x, y,
                     anchor, more, escaped(text));
}

std::string Chart::axes() const {
  std::string svg;
  for (int i = 0; step_ * i <= top_bytes_ * 1.001; ++i) {
    const double at = y(step_ * i);
    svg +=
        fmt::format("<line x1=\"{0}\" y1=\"{1:.1f}\" x2=\"{2}\" y2=\"{1:.1f}\" stroke=\"{3}\"/>\n",
                    kLeft, at, kRight, i == 0 ? "#333" : "#ddd");
    svg += text_at(kLeft - 8, at + 4, "end", axis_bytes(step_ * i));
  }
  svg += fmt::format("<line x1=\"{0}\" y1=\"{1}\" x2=\"{0}\" y2=\"{2}\" stroke=\"#333\"/>\n", kLeft,
                     kTop, kBottom);
  for (double chunks = 1.0; chunks <= most_chunks_; chunks *= 2.0) {
    const double at = x(chunks);
    svg +=
        fmt::format("<line x1=\"{0:.1f}\" y1=\"{1}\" x2=\"{0:.1f}\" y2=\"{2}\" stroke=\"#333\"/>\n",
                    at, kBottom, kBottom + 5);
    svg += text_at(at, kBottom + 20, "middle", fmt::format("{:.0f}", chunks));
  }
  svg += text_at((kLeft + kRight) / 2, kBottom + 42, "middle", "number of chunks");
  svg += text_at(20, (kTop + kBottom) / 2, "middle", "extra memory of the loss step",
                 fmt::format(" transform=\"rotate(-90 20 {:.1f})\"", (kTop + kBottom) / 2).c_str());
  return svg;
}

std::string Chart::line(const Series& series) const {
  std::string points;
  for (const BenchRow* row : series.rows) {
    points += fmt::format("{:.1f},{:.1f} ", x(static_cast<double>(row->num_chunks)),
                          y(static_cast<double>(row->extra_bytes)));
  }
  if (is_level(series.method)) {
    const double at = y(static_cast<double>(series.rows.front()->extra_bytes));
    points = fmt::format("{:.1f},{:.1f} {:.1f},{:.1f}", x(1.0), at, x(most_chunks_), at);
  }
  const bool runs = series.rows.front()->runnable;
  return fmt::format("<polyline fill=\"none\" stroke=\"{}\" stroke-width=\"2\"{} points=\"{}\"/>\n",
                     color_of(series.method), runs ? "" : " stroke-dasharray=\"6 4\"", points);
}

std::string Chart::dots(const Series& series) const {
  std::string svg;
  for (const BenchRow* row : series.rows) {
    if (!row->measured) continue;
    svg += fmt::format("<circle cx=\"{:.1f}\" cy=\"{:.1f}\" r=\"4\" fill=\"{}\"/>\n",
                       x(static_cast<double>(row->num_chunks)),
                       y(static_cast<double>(row->used_bytes)), color_of(series.method));
  }
  return svg;
}

std::string legend(const std::vector<Series>& all) {
  std::string svg;
  double at = kTop + 10;
  for (const Series& series : all) {
    svg += fmt::format(
        "<line x1=\"{0}\" y1=\"{1:.1f}\" x2=\"{2}\" y2=\"{1:.1f}\" stroke=\"{3}\" "
        "stroke-width=\"2\"{4}/>\n",
        kRight + 20, at, kRight + 50, color_of(series.method),
        series.rows.front()->runnable ? "" : " stroke-dasharray=\"6 4\"");
    svg += text_at(kRight + 58, at + 4, "start", name_of(series.method));
    at += 22;
  }
  svg += text_at(kRight + 20, at + 14, "start", "line: predicted");
  svg += text_at(kRight + 20, at + 32, "start", "dot: measured");
  return svg;
}

}  // namespace

std::string bench_svg(const BenchResult& result, const Machine& machine) {
  const std::vector<Series> all = series_of(result);
  const Chart chart(result);
  std::string svg = fmt::format(
      "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {0} {1}\" width=\"{0}\" "
      "height=\"{1}\" font-family=\"sans-serif\" font-size=\"12\" fill=\"#222\">\n"
      "<rect width=\"{0}\" height=\"{1}\" fill=\"#fff\"/>\n",
      kWidth, kHeight);
  svg += text_at(kLeft, 28, "start", "Extra memory against the number of chunks",
                 " font-size=\"16\" font-weight=\"bold\"");
  svg += text_at(kLeft, 48, "start", format_problem(result.problem));
  svg += chart.axes();
  for (const Series& series : all) svg += chart.line(series);
  for (const Series& series : all) svg += chart.dots(series);
  svg += legend(all);
  svg += text_at(kLeft, kHeight - 14, "start",
                 fmt::format("{}, {}, {} threads, flce {}, {}", machine.cpu_model, machine.isa,
                             machine.threads, machine.version, machine.date),
                 " font-size=\"10\" fill=\"#666\"");
  return svg + "</svg>\n";
}

}  // namespace flce::cli
