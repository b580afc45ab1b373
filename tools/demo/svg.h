// SPDX-License-Identifier: Apache-2.0
// svg.h -- the few kinds of picture that the demo's page draws, as inline SVG. Colours are CSS classes of the page's (c1, c2, c3),
// so that they follow its light and dark schemes.
#pragma once

#include <span>
#include <string>
#include <utility>
#include <vector>

namespace narrows::tools {

struct Axis {
  double low = 0, high = 1;
  bool logarithmic = false;
  std::vector<std::pair<double, std::string>> ticks;
  std::string label;
};

std::vector<std::pair<double, std::string>> even_ticks(double low, double high, int about);

// Lines over two axes, with a legend.
class Plot {
 public:
  Plot(Axis x, Axis y, std::string description, int height = 320);

  void shade(double from, double to, const std::string& label);  // a range of x
  void line(std::span<const std::pair<double, double>> points, const std::string& css_class, const std::string& name);
  void level(double y, const std::string& label);  // a dashed horizontal line
  std::string svg() const;

 private:
  double at_x(double value) const;
  double at_y(double value) const;
  std::string axes() const;

  Axis x_, y_;
  std::string description_, back_, front_;
  std::vector<std::pair<std::string, std::string>> legend_;  // class, name
  int height_;
};

// The outline of a signal: between its least and greatest value in every column.
std::string waveform_svg(std::span<const float> samples, const std::string& css_class, const std::string& description);

// Columns of `rows` values each, the first row at the bottom; colours from `low` to `high`.
std::string heat_map_svg(std::span<const float> values, int rows, double low, double high, const std::string& description);
// "#rrggbb" for a place between 0 and 1 on the heat map's scale.
std::string heat_colour(double place);

std::string escaped(const std::string& text);  // for text and attributes of HTML, control characters and broken UTF-8 replaced

}  // namespace narrows::tools
