// SPDX-License-Identifier: Apache-2.0
// log_bands.cpp -- the filter bank and the energies. See log_bands.h.
#include "log_bands.h"

#include <algorithm>
#include <cmath>
#include <numbers>

namespace narrows::tools {
namespace {

constexpr double kLowestCentre = 150, kHighestCentre = 7000;  // Hz
constexpr double kSilence = 1e-8;  // energy added to every band: 80 dB below full scale, above the noise of 16 bits

double to_mel(double hertz) { return 1127 * std::log1p(hertz / 700); }
double to_hertz(double mel) { return 700 * std::expm1(mel / 1127); }

}  // namespace

LogBands::LogBands(const Engine& engine, uint32_t sample_rate, int64_t bands, double frame_seconds)
    : engine_(engine), bands_(bands), hop_(std::llround(sample_rate * frame_seconds / kHopsPerFrame)) {
  const double lowest = to_mel(kLowestCentre), highest = to_mel(std::min(kHighestCentre, 0.42 * sample_rate));
  const double spacing = (highest - lowest) / static_cast<double>(bands - 1);
  const int64_t taps = frame_samples();
  std::vector<float> bank(static_cast<size_t>(2 * bands * taps));
  for (int64_t band = 0; band < bands; ++band) {
    const double mel = lowest + spacing * static_cast<double>(band), centre = to_hertz(mel);
    centres_.push_back(centre);
    // Hann's window is half as high at 1/width to either side: where the neighbouring bands begin.
    const double bandwidth = to_hertz(mel + spacing / 2) - to_hertz(mel - spacing / 2);
    const double width = std::min(2 * sample_rate / bandwidth, static_cast<double>(taps));
    for (int64_t j = 0; j < taps; ++j) {
      const double from_middle = static_cast<double>(j) - static_cast<double>(taps - 1) / 2;
      if (std::abs(from_middle) >= width / 2) continue;
      const double hann = (1 + std::cos(2 * std::numbers::pi * from_middle / width)) / width;
      const double angle = 2 * std::numbers::pi * centre / sample_rate * from_middle;
      bank[static_cast<size_t>(band * taps + j)] = static_cast<float>(hann * std::cos(angle));
      bank[static_cast<size_t>((bands + band) * taps + j)] = static_cast<float>(hann * std::sin(angle));
    }
  }
  bank_ = engine.upload(bank, {2 * bands, 1, taps});
  mean_ = engine.upload(std::vector<float>(static_cast<size_t>(bands * kHopsPerFrame), 1.0f / kHopsPerFrame),
                        {bands, 1, kHopsPerFrame});
}

Operation LogBands::bank_operation(const Tensor& signal, const Tensor& out) const {
  nw_conv1d_params params{};
  params.stride = hop_;
  // One window to a hop, its middle on the hop's: (kHopsPerFrame - 1) hops are left over, half of them on either side.
  params.pad_left = (frame_samples() - hop_) / 2;
  params.pad_right = frame_samples() - hop_ - params.pad_left;
  return {"conv1d", {&signal, &bank_}, {&out}, params};
}

Tensor LogBands::compute(const Tensor& signal) const {
  const int64_t count = frames(signal.size(0)), hops = count * kHopsPerFrame;
  const Tensor whole = signal.view(0, {1, count * frame_samples()}, {count * frame_samples(), 1});
  const Tensor waves = engine_.empty({2 * bands_, hops}), energy = engine_.empty({bands_, hops}),
               frame = engine_.empty({bands_, count});
  engine_.run(bank_operation(whole, waves));
  engine_.run(elementwise(NW_EW_SQUARE, {waves}, waves));
  engine_.run(elementwise(NW_EW_ADD, {waves.slice(0, 0, bands_), waves.slice(0, bands_, bands_)}, energy));
  nw_conv1d_params params{};
  params.stride = kHopsPerFrame;
  params.groups = bands_;
  engine_.run({"conv1d", {&energy, &mean_}, {&frame}, params});
  engine_.run(elementwise(NW_EW_ADD, {frame, kSilence}, frame));
  engine_.run(elementwise(NW_EW_LOG, {frame}, frame));
  return frame;
}

}  // namespace narrows::tools
