// SPDX-License-Identifier: Apache-2.0
// test_report.cpp -- what the demo says: numbers in words, text from strangers, spectra, and the verdict.
#include "demo/report.h"

#include <catch2/catch_test_macros.hpp>
#include <cmath>
#include <numbers>

#include "demo/sound_steps.h"
#include "demo/svg.h"

using namespace narrows::tools;

TEST_CASE("durations and rates have their unit") {
  CHECK(duration(2.5) == "2.50 s");
  CHECK(duration(0.0025) == "2.50 ms");
  CHECK(duration(2.5e-6) == "2.5 us");
  Ran ran;
  ran.seconds = 0.5, ran.bytes = 1e9;
  CHECK(rate_text(ran) == "2.00 GB/s");
  CHECK(real_time_text(ran, 48000).empty());
  ran.flops = 1e9, ran.samples = 48000;
  CHECK(rate_text(ran) == "2.00 GFLOP/s");
  CHECK(real_time_text(ran, 48000) == "2 x real time");
}

TEST_CASE("a file's name cannot break the page, the terminal or the JSON") {
  CHECK(escaped("<a href=\"x\">&") == "&lt;a href=&quot;x&quot;&gt;&amp;");
  CHECK(printable("a\033[31mb\n") == "a?[31mb?");
  CHECK(printable("caf\xC3\xA9") == "caf\xC3\xA9");
  CHECK(printable("a\xFFz") == "a\xEF\xBF\xBDz");
}

TEST_CASE("the verdict needs the puzzle, every check, and the baseline where it is required") {
  Report report;
  report.puzzle.ok = true;
  report.checks = {Agreement{}};
  CHECK_FALSE(report.ok());
  report.checks[0].ok = true;
  CHECK(report.ok());
  report.baseline_required = true;
  CHECK_FALSE(report.ok());
  report.training.beats_persistence = true;
  CHECK(report.ok());
  report.puzzle.ok = false;
  CHECK_FALSE(report.ok());
}

TEST_CASE("a full-scale sine stands at 0 dB in its band and nowhere else") {
  std::vector<float> sine(48000);
  for (size_t i = 0; i < sine.size(); ++i)
    sine[i] = static_cast<float>(std::sin(2 * std::numbers::pi * 1500 * static_cast<double>(i) / 48000));
  for (const SpectrumPoint& p : power_spectrum(sine, 48000, 50, 240)) {
    CAPTURE(p.hertz);
    if (std::abs(p.hertz - 1500) > 100) CHECK(p.decibels < -60);
    if (std::abs(p.hertz - 1500) < 10) CHECK(std::abs(p.decibels) < 4);
  }
  CHECK(power_spectrum(std::vector<float>{1, 2, 3}, 8000, 50, 10).size() == 10);
}

TEST_CASE("the band-pass passes its band and stops 0 Hz") {
  const auto taps = band_pass_taps({300, 3400, 127}, 48000);
  REQUIRE(taps.size() == 127);
  double sum = 0;
  for (const float tap : taps) sum += tap;
  CHECK(std::abs(sum) < 1e-6);
  for (const SpectrumPoint& p : filter_response(taps, 48000, 50, 200)) {
    CAPTURE(p.hertz);
    if (p.hertz > 1000 && p.hertz < 2500) CHECK(std::abs(p.decibels) < 0.5);
    if (p.hertz > 4500) CHECK(p.decibels < -40);
  }
}

TEST_CASE("ticks are round numbers inside the axis") {
  CHECK(even_ticks(0, 1, 5) == std::vector<std::pair<double, std::string>>{
                                   {0, "0"}, {0.2, "0.2"}, {0.4, "0.4"}, {0.2 * 3, "0.6"}, {0.8, "0.8"}, {1, "1"}});
  CHECK(even_ticks(1, 1, 5).empty());
}
