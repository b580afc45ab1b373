// SPDX-License-Identifier: Apache-2.0
// sound_steps.cpp -- puzzle 17, the band-pass, the soft clip. See sound_steps.h.
#include "sound_steps.h"

#include <algorithm>
#include <cmath>
#include <numbers>
#include <span>

namespace narrows::tools {
namespace {

// The reference is compared over this much of a long recording: a float64 loop takes its time.
constexpr size_t kMostChecked = 4'000'000;

double sinc(double x) { return x == 0 ? 1 : std::sin(std::numbers::pi * x) / (std::numbers::pi * x); }

std::vector<double> low_pass(double cut, int64_t taps, uint32_t sample_rate) {
  std::vector<double> h(static_cast<size_t>(taps));
  const double middle = static_cast<double>(taps - 1) / 2, turn = 2 * std::numbers::pi / static_cast<double>(taps - 1);
  double sum = 0;
  for (int64_t i = 0; i < taps; ++i) {
    const double hamming = 0.54 - 0.46 * std::cos(turn * static_cast<double>(i));
    sum += h[i] = hamming * sinc(2 * cut / sample_rate * (static_cast<double>(i) - middle));
  }
  for (double& tap : h) tap /= sum;
  return h;
}

Operation conv1d(const Tensor& x, const Tensor& w, const Tensor& y, int64_t pad_left, int64_t pad_right) {
  nw_conv1d_params params{};
  params.pad_left = pad_left;
  params.pad_right = pad_right;
  return {"conv1d", {&x, &w}, {&y}, params};
}

Ran time_it(const Engine& engine, const char* step, const char* name, const std::string& shapes, const Operation& operation) {
  const Chosen chosen = engine.chosen(operation);
  Ran ran{step, name, shapes, chosen.backend, chosen.kernel};
  ran.seconds = engine.seconds_per_run(operation);
  return ran;
}

}  // namespace

Puzzle run_puzzle(const Engine& engine) {
  Puzzle puzzle;
  puzzle.expected = {14, 20, 26, 32, 38, 44, 50, 56, 62, 68, 74, 80, 41, 14, 0};
  std::vector<float> signal(15);
  for (int i = 0; i < 15; ++i) signal[i] = static_cast<float>(i);
  const Tensor x = engine.upload(signal, {15}), w = engine.upload(std::vector<float>{0, 1, 2, 3}, {4}), y = engine.empty({15});
  engine.run(conv1d(x, w, y, 0, 3));
  puzzle.got = engine.download(y);
  puzzle.ok = puzzle.got == puzzle.expected;
  return puzzle;
}

std::vector<float> band_pass_taps(const Band& band, uint32_t sample_rate) {
  const auto below_high = low_pass(band.high, band.taps, sample_rate), below_low = low_pass(band.low, band.taps, sample_rate);
  std::vector<float> taps(below_high.size());
  for (size_t i = 0; i < taps.size(); ++i) taps[i] = static_cast<float>(below_high[i] - below_low[i]);
  return taps;
}

std::vector<float> run_band_pass(const Engine& engine, const std::vector<float>& samples, const Band& band, uint32_t sample_rate,
                                 Report& report) {
  const auto taps = band_pass_taps(band, sample_rate);
  const auto length = static_cast<int64_t>(samples.size());
  const int64_t half = band.taps / 2;
  const Tensor x = engine.upload(samples, {length}), w = engine.upload(taps, {band.taps}), y = engine.empty({length});
  const Operation filter = conv1d(x, w, y, half, half);
  engine.run(filter);
  std::vector<float> result = engine.download(y);

  const size_t checked = std::min(samples.size(), kMostChecked);
  auto want = reference_conv1d(std::span(samples).first(checked), taps, half, half);
  // Where the check stops inside the recording, the reference has zeros that the recording has not.
  if (checked < samples.size()) want.resize(checked - static_cast<size_t>(half));
  report.checks.push_back(compare("conv1d: band-pass", std::span(result).first(want.size()), want, 1e-6, 1e-5));

  Ran ran = time_it(engine, "band-pass", "conv1d", "x " + x.shape_text() + ", w " + w.shape_text(), filter);
  ran.samples = static_cast<double>(length);
  ran.flops = 2.0 * static_cast<double>(length) * static_cast<double>(band.taps);
  ran.bytes = 8.0 * static_cast<double>(length);
  report.ran.push_back(ran);
  return result;
}

std::vector<float> run_soft_clip(const Engine& engine, const std::vector<float>& samples, double gain, Report& report) {
  const auto length = static_cast<int64_t>(samples.size());
  const Tensor x = engine.upload(samples, {length}), louder = engine.empty({length}), y = engine.empty({length});
  const Operation amplify = elementwise(NW_EW_MUL, {x, gain}, louder), clip = elementwise(NW_EW_TANH, {louder}, y);
  engine.run(amplify);
  engine.run(clip);
  std::vector<float> result = engine.download(y);

  const size_t checked = std::min(samples.size(), kMostChecked);
  report.checks.push_back(compare("elementwise: soft clip", std::span(result).first(checked),
                                  reference_soft_clip(std::span(samples).first(checked), gain), 1e-6, 1e-5));
  for (const auto& [name, operation] : {std::pair{"elementwise mul", &amplify}, std::pair{"elementwise tanh", &clip}}) {
    Ran ran = time_it(engine, "soft clip", name, "x " + x.shape_text(), *operation);
    ran.samples = static_cast<double>(length);
    ran.bytes = 8.0 * static_cast<double>(length);
    report.ran.push_back(ran);
  }
  return result;
}

}  // namespace narrows::tools
