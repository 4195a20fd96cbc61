// SPDX-License-Identifier: Apache-2.0
#include "bench_plot.hpp"

#include <fmt/core.h>

#include <algorithm>
#include <cmath>
#include <set>
#include <string_view>

#include "common.hpp"

namespace flce::cli {
namespace {

constexpr double kWidth = 900.0;
constexpr double kHeight = 520.0;
constexpr double kLeft = 100.0;
constexpr double kRight = 700.0;  // the legend stands right of it
constexpr double kTop = 70.0;
constexpr double kBottom = 440.0;
constexpr double kTickGap = 36.0;  // between two numbers under the axis

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

std::string text_at(double x, double y, const char* anchor, const std::string& text,
                    const char* more = "") {
  return fmt::format("<text x=\"{:.1f}\" y=\"{:.1f}\" text-anchor=\"{}\"{}>{}</text>\n", x, y,
                     anchor, more, escaped(text));
}

// The smallest of 1, 2, 2.5, 5 times a power of ten that leaves at most six steps.
double nice_step(double largest) {
  const double power = std::pow(10.0, std::floor(std::log10(std::max(largest, 1e-9) / 6.0)));
  for (const double factor : {1.0, 2.0, 2.5, 5.0, 10.0}) {
    if (power * factor * 6.0 >= largest) return power * factor;
  }
  return power * 10.0;
}

// Steps are round numbers, so that a few digits say all. The largest value chooses the unit.
std::string axis_text(PlotUnit unit, double value, double largest) {
  struct Unit {
    double size;
    const char* name;
  };
  constexpr Unit kBytes[] = {{1e9, "GB"}, {1e6, "MB"}, {1e3, "kB"}, {1.0, "B"}};
  constexpr Unit kTimes[] = {{1.0, "s"}, {1e-3, "ms"}, {1e-6, "us"}, {1e-9, "ns"}};
  const auto& units = unit == PlotUnit::kBytes ? kBytes : kTimes;
  for (const Unit& one : units) {
    if (largest >= one.size) return fmt::format("{:.4g} {}", value / one.size, one.name);
  }
  return fmt::format("{:.4g}", value);
}

// One class a line, so that the colours can follow the page.
std::string style_of(const Plot& plot) {
  std::string light =
      "text{fill:#24292f}.small{fill:#57606a;font-size:10px}.page{fill:#ffffff}"
      ".grid{stroke:#d8dee4}.axis{stroke:#57606a}";
  std::string dark =
      "text{fill:#e6edf3}.small{fill:#9198a1}.page{fill:#0d1117}"
      ".grid{stroke:#30363d}.axis{stroke:#9198a1}";
  for (std::size_t i = 0; i < plot.lines.size(); ++i) {
    light += fmt::format(".l{}{{color:{}}}", i, plot.lines[i].light);
    dark += fmt::format(".l{}{{color:{}}}", i, plot.lines[i].dark);
  }
  return fmt::format("<style>{}@media (prefers-color-scheme:dark){{{}}}</style>\n", light, dark);
}

class Chart {
 public:
  explicit Chart(const Plot& plot) : plot_(plot) {
    double largest = 0.0;
    for (const PlotLine& line : plot.lines) {
      for (const auto* points : {&line.predicted, &line.measured}) {
        for (const PlotPoint& point : *points) {
          largest = std::max({largest, point.y, point.high});
          if (!line.is_level) xs_.insert(point.x);
        }
      }
    }
    if (xs_.empty()) xs_.insert(1.0);
    step_ = nice_step(largest);
    top_ = step_ * std::max(1.0, std::ceil(largest / step_ - 1e-9));
  }

  std::string axes() const;
  std::string line(std::size_t index) const;

 private:
  double x(double value) const {
    const double first = std::log2(*xs_.begin());
    const double width = std::log2(*xs_.rbegin()) - first;
    // A single value stands in the middle.
    const double share = width == 0.0 ? 0.5 : (std::log2(value) - first) / width;
    return kLeft + 20.0 + share * (kRight - kLeft - 40.0);
  }
  double y(double value) const { return kBottom - value / top_ * (kBottom - kTop); }
  std::string path(const std::vector<PlotPoint>& points, bool is_level) const;

  const Plot& plot_;
  std::set<double> xs_;
  double step_ = 1.0;
  double top_ = 1.0;
};

std::string Chart::axes() const {
  std::string svg;
  for (int i = 0; step_ * i <= top_ * 1.001; ++i) {
    const double at = y(step_ * i);
    svg +=
        fmt::format("<line x1=\"{0}\" y1=\"{1:.1f}\" x2=\"{2}\" y2=\"{1:.1f}\" class=\"{3}\"/>\n",
                    kLeft, at, kRight, i == 0 ? "axis" : "grid");
    svg += text_at(kLeft - 8, at + 4, "end", axis_text(plot_.unit, step_ * i, top_));
  }
  double last = kLeft - kTickGap;
  for (const double value : xs_) {
    const double at = x(value);
    svg +=
        fmt::format("<line x1=\"{0:.1f}\" y1=\"{1}\" x2=\"{0:.1f}\" y2=\"{2}\" class=\"axis\"/>\n",
                    at, kBottom, kBottom + 5);
    if (at - last < kTickGap) continue;
    svg += text_at(at, kBottom + 20, "middle", format_count(static_cast<std::int64_t>(value)));
    last = at;
  }
  svg += text_at((kLeft + kRight) / 2, kBottom + 42, "middle", plot_.x_label);
  svg += text_at(20, (kTop + kBottom) / 2, "middle", plot_.y_label,
                 fmt::format(" transform=\"rotate(-90 20 {:.1f})\"", (kTop + kBottom) / 2).c_str());
  return svg;
}

std::string Chart::path(const std::vector<PlotPoint>& points, bool is_level) const {
  if (is_level && !points.empty()) {
    const double at = y(points.front().y);
    return fmt::format("{:.1f},{:.1f} {:.1f},{:.1f}", kLeft, at, kRight, at);
  }
  std::string text;
  for (const PlotPoint& point : points) {
    text += fmt::format("{:.1f},{:.1f} ", x(point.x), y(point.y));
  }
  return text;
}

std::string Chart::line(std::size_t index) const {
  const PlotLine& line = plot_.lines[index];
  std::string svg = fmt::format("<g class=\"l{}\" stroke=\"currentColor\">\n", index);
  if (!line.predicted.empty()) {
    svg += fmt::format(
        "<polyline fill=\"none\" stroke-width=\"1.5\" stroke-dasharray=\"5 4\" points=\"{}\"/>\n",
        path(line.predicted, line.is_level));
  }
  if (!line.measured.empty()) {
    svg += fmt::format("<polyline fill=\"none\" stroke-width=\"2\" points=\"{}\"/>\n",
                       path(line.measured, line.is_level));
  }
  for (const PlotPoint& point : line.measured) {
    const double at = line.is_level ? kLeft : x(point.x);
    if (point.high > point.low) {
      svg += fmt::format("<line x1=\"{0:.1f}\" y1=\"{1:.1f}\" x2=\"{0:.1f}\" y2=\"{2:.1f}\"/>\n",
                         at, y(point.low), y(point.high));
    }
    svg += fmt::format(
        "<circle cx=\"{:.1f}\" cy=\"{:.1f}\" r=\"4\" fill=\"currentColor\" stroke=\"none\"/>\n", at,
        y(point.y));
  }
  return svg + "</g>\n";
}

std::string legend(const Plot& plot) {
  std::string svg;
  double at = kTop + 10;
  bool has_whiskers = false;
  for (std::size_t i = 0; i < plot.lines.size(); ++i) {
    const PlotLine& line = plot.lines[i];
    svg += fmt::format(
        "<g class=\"l{0}\" stroke=\"currentColor\"><line x1=\"{1}\" y1=\"{2:.1f}\" x2=\"{3}\" "
        "y2=\"{2:.1f}\" stroke-width=\"2\"{4}/></g>\n",
        i, kRight + 20, at, kRight + 50, line.measured.empty() ? " stroke-dasharray=\"6 4\"" : "");
    svg += text_at(kRight + 58, at + 4, "start", line.name);
    for (const PlotPoint& point : line.measured) has_whiskers |= point.high > point.low;
    at += 22;
  }
  svg += text_at(kRight + 20, at + 14, "start",
                 has_whiskers ? "dot, line: measured median" : "dot, line: measured");
  svg += text_at(kRight + 20, at + 32, "start", "dashed: predicted");
  if (has_whiskers) svg += text_at(kRight + 20, at + 50, "start", "whisker: the range measured");
  return svg;
}

}  // namespace

std::string plot_svg(const Plot& plot) {
  const Chart chart(plot);
  std::string svg = fmt::format(
      "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {0} {1}\" width=\"{0}\" "
      "height=\"{1}\" font-family=\"sans-serif\" font-size=\"12\">\n",
      kWidth, kHeight);
  svg += style_of(plot);
  svg += fmt::format("<title>{}</title>\n", escaped(plot.title));
  svg += fmt::format("<rect width=\"{}\" height=\"{}\" class=\"page\"/>\n", kWidth, kHeight);
  svg += text_at(kLeft, 28, "start", plot.title, " font-size=\"16\" font-weight=\"bold\"");
  svg += text_at(kLeft, 48, "start", plot.subtitle);
  svg += chart.axes();
  for (std::size_t i = 0; i < plot.lines.size(); ++i) svg += chart.line(i);
  svg += legend(plot);
  svg += text_at(kLeft, kHeight - 14, "start", plot.footer, " class=\"small\"");
  return svg + "</svg>\n";
}

}  // namespace flce::cli
