// SPDX-License-Identifier: Apache-2.0
// A line plot as an SVG file that reads on light and on dark pages. Knows nothing of methods: lines
// have names and colours, axes have units.
#pragma once

#include <string>
#include <vector>

namespace flce::cli {

struct PlotPoint {
  double x = 1.0;
  double y = 0.0;
  double low = 0.0;  // of the whisker of a measured point; low == high: none
  double high = 0.0;
};

struct PlotLine {
  std::string name;
  std::string light;  // its colour on a light page, "#rrggbb"
  std::string dark;
  std::vector<PlotPoint> predicted;  // a dashed line
  std::vector<PlotPoint> measured;   // dots and a line
  bool is_level = false;             // one value for every x: drawn across the plot
};

enum class PlotUnit { kBytes, kSeconds };

struct Plot {
  std::string title;
  std::string subtitle;
  std::string x_label;
  std::string y_label;
  std::string footer;
  PlotUnit unit = PlotUnit::kBytes;
  std::vector<PlotLine> lines;
};

// x in powers of two, y from 0.
std::string plot_svg(const Plot& plot);

}  // namespace flce::cli
