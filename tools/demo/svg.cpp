// SPDX-License-Identifier: Apache-2.0
// svg.cpp -- plots, waveforms, heat maps. See svg.h.
#include "svg.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdio>

#include "report.h"

namespace narrows::tools {
namespace {

constexpr int kWidth = 1000, kLeft = 62, kRight = 14, kTop = 34, kBottom = 46;  // of the viewBox

std::string number(double value) {
  char text[32];
  std::snprintf(text, sizeof text, "%.1f", value);
  return text;
}

std::string text_at(double x, double y, const char* css_class, const std::string& words, const std::string& more = "") {
  return "<text class=\"" + std::string(css_class) + "\" x=\"" + number(x) + "\" y=\"" + number(y) + "\"" + more + ">" +
         escaped(words) + "</text>";
}

std::string line_at(double x1, double y1, double x2, double y2, const char* css_class) {
  return "<line class=\"" + std::string(css_class) + "\" x1=\"" + number(x1) + "\" y1=\"" + number(y1) + "\" x2=\"" + number(x2) +
         "\" y2=\"" + number(y2) + "\"/>";
}

std::string open_svg(int height, const std::string& description, const char* more = "") {
  return "<svg viewBox=\"0 0 " + std::to_string(kWidth) + " " + std::to_string(height) + "\" role=\"img\" aria-label=\"" +
         escaped(description) + "\"" + more + ">";
}

}  // namespace

std::string escaped(const std::string& text) {
  std::string out;
  for (const char c : printable(text)) {
    switch (c) {
      case '&': out += "&amp;"; break;
      case '<': out += "&lt;"; break;
      case '>': out += "&gt;"; break;
      case '"': out += "&quot;"; break;
      default: out += c;
    }
  }
  return out;
}

std::vector<std::pair<double, std::string>> even_ticks(double low, double high, int about) {
  std::vector<std::pair<double, std::string>> ticks;
  if (!(high > low)) return ticks;
  const double rough = (high - low) / about, power = std::pow(10, std::floor(std::log10(rough)));
  double step = 10 * power;
  for (const double nice : {5.0, 2.0, 1.0})
    if (nice * power >= rough) step = nice * power;
  const auto first = static_cast<int64_t>(std::ceil(low / step - 1e-9)),
             last = static_cast<int64_t>(std::floor(high / step + 1e-9));
  for (int64_t i = first; i <= last; ++i) {
    const double tick = static_cast<double>(i) * step;
    char text[32];
    std::snprintf(text, sizeof text, "%g", tick);
    ticks.emplace_back(tick, text);
  }
  return ticks;
}

Plot::Plot(Axis x, Axis y, std::string description, int height)
    : x_(std::move(x)), y_(std::move(y)), description_(std::move(description)), height_(height) {}

double Plot::at_x(double value) const {
  const auto scale = [this](double v) { return x_.logarithmic ? std::log(v) : v; };
  return kLeft + (kWidth - kLeft - kRight) * (scale(value) - scale(x_.low)) / (scale(x_.high) - scale(x_.low));
}

double Plot::at_y(double value) const {
  const double place = (std::clamp(value, y_.low, y_.high) - y_.low) / (y_.high - y_.low);
  return height_ - kBottom - (height_ - kTop - kBottom) * place;
}

void Plot::shade(double from, double to, const std::string& label) {
  const double left = at_x(from), right = at_x(to);
  back_ += "<rect class=\"band\" x=\"" + number(left) + "\" y=\"" + std::to_string(kTop) + "\" width=\"" + number(right - left) +
           "\" height=\"" + std::to_string(height_ - kTop - kBottom) + "\"/>";
  front_ += text_at((left + right) / 2, kTop + 38, "note middle", label);
}

void Plot::line(std::span<const std::pair<double, double>> points, const std::string& css_class, const std::string& name) {
  std::string path;
  for (const auto& [x, y] : points)
    if (std::isfinite(y)) path += (path.empty() ? "" : " ") + number(at_x(x)) + "," + number(at_y(y));
  front_ += "<polyline class=\"curve " + css_class + "\" points=\"" + path + "\"/>";
  legend_.emplace_back(css_class, name);
}

void Plot::level(double y, const std::string& label) {
  front_ += line_at(kLeft, at_y(y), kWidth - kRight, at_y(y), "level");
  front_ += text_at(kWidth - kRight - 6, at_y(y) - 6, "note end", label);
}

std::string Plot::axes() const {
  const double bottom = height_ - kBottom;
  std::string out;
  for (const auto& [value, label] : y_.ticks) {
    out += line_at(kLeft, at_y(value), kWidth - kRight, at_y(value), "grid");
    out += text_at(kLeft - 8, at_y(value) + 4, "tick end", label);
  }
  for (const auto& [value, label] : x_.ticks) {
    out += line_at(at_x(value), kTop, at_x(value), bottom, "grid");
    out += text_at(at_x(value), bottom + 18, "tick middle", label);
  }
  out += line_at(kLeft, bottom, kWidth - kRight, bottom, "axis");
  out += text_at((kLeft + kWidth - kRight) / 2.0, height_ - 8, "label middle", x_.label);
  out += text_at(0, 0, "label middle", y_.label, " transform=\"translate(14 " + number((kTop + bottom) / 2) + ") rotate(-90)\"");
  return out;
}

std::string Plot::svg() const {
  std::string legend;
  double x = kLeft;
  for (const auto& [css_class, name] : legend_) {
    legend += line_at(x, 14, x + 22, 14, ("curve " + css_class).c_str()) + text_at(x + 28, 18, "key", name);
    x += 52 + 7.2 * static_cast<double>(name.size());
  }
  return open_svg(height_, description_) + back_ + axes() + front_ + legend + "</svg>";
}

std::string waveform_svg(std::span<const float> samples, const std::string& css_class, const std::string& description) {
  constexpr int kHeight = 110;
  const size_t columns = std::min<size_t>(kWidth, samples.size());
  std::string outline;
  std::vector<std::string> lower;  // from left to right; the outline comes back along it
  for (size_t c = 0; c < columns; ++c) {
    const auto part =
        samples.subspan(c * samples.size() / columns, (c + 1) * samples.size() / columns - c * samples.size() / columns);
    const auto [least, greatest] = std::minmax_element(part.begin(), part.end());
    const double x = static_cast<double>(c) * kWidth / static_cast<double>(columns);
    const auto y = [](float v) { return kHeight / 2.0 * (1 - 0.96 * std::clamp(v, -1.0f, 1.0f)); };
    outline += number(x) + "," + number(y(*greatest) - 0.4) + " ";
    lower.push_back(number(x) + "," + number(y(*least) + 0.4) + " ");
  }
  for (auto point = lower.rbegin(); point != lower.rend(); ++point) outline += *point;
  return open_svg(kHeight, description, " preserveAspectRatio=\"none\" class=\"wave\"") +
         line_at(0, kHeight / 2.0, kWidth, kHeight / 2.0, "grid") + "<polygon class=\"fill " + css_class + "\" points=\"" +
         outline + "\"/></svg>";
}

std::string heat_colour(double place) {
  // Dark blue over violet and coral to pale yellow, evenly growing in lightness: readable without colour vision, too.
  static constexpr std::array<std::array<double, 3>, 6> kAnchors = {
      {{13, 16, 52}, {70, 26, 110}, {142, 41, 120}, {213, 72, 94}, {249, 140, 80}, {252, 236, 172}}};
  const double scaled = (std::isfinite(place) ? std::clamp(place, 0.0, 1.0) : 0.0) * (kAnchors.size() - 1);
  const auto first = std::min(static_cast<size_t>(scaled), kAnchors.size() - 2);
  const double part = scaled - static_cast<double>(first);
  std::array<int, 3> rgb;
  for (size_t i = 0; i < 3; ++i)
    rgb[i] = static_cast<int>(std::lround((1 - part) * kAnchors[first][i] + part * kAnchors[first + 1][i]));
  char text[8];
  std::snprintf(text, sizeof text, "#%02x%02x%02x", rgb[0] & 255, rgb[1] & 255, rgb[2] & 255);
  return text;
}

std::string heat_map_svg(std::span<const float> values, int rows, double low, double high, const std::string& description) {
  constexpr int kCell = 8;
  const auto columns = static_cast<int>(values.size()) / rows;
  std::string out = "<svg viewBox=\"0 0 " + std::to_string(columns) + " " + std::to_string(rows * kCell) +
                    "\" role=\"img\" aria-label=\"" + escaped(description) +
                    "\" preserveAspectRatio=\"none\" shape-rendering=\"crispEdges\" class=\"heat\">";
  for (int row = 0; row < rows; ++row) {
    for (int column = 0, end; column < columns; column = end) {  // neighbours of one colour are one rectangle
      const auto colour = [&](int c) { return heat_colour((values[c * rows + row] - low) / (high - low)); };
      const std::string fill = colour(column);
      for (end = column + 1; end < columns && colour(end) == fill;) ++end;
      out += "<rect x=\"" + std::to_string(column) + "\" y=\"" + std::to_string((rows - 1 - row) * kCell) + "\" width=\"" +
             std::to_string(end - column) + "\" height=\"" + std::to_string(kCell) + "\" fill=\"" + fill + "\"/>";
    }
  }
  return out + "</svg>";
}

}  // namespace narrows::tools
