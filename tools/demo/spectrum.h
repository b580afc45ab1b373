// SPDX-License-Identifier: Apache-2.0
// spectrum.h -- the power spectrum of a recording, for the report's picture; not one of the runtime's ops.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

namespace narrows::tools {

struct SpectrumPoint {
  double hertz;
  double decibels;  // of a band's power, over a full-scale sine's
};

// Welch's method (Hann windows, half overlapping), gathered into `points` bands of equal ratio from `lowest` Hz to half the rate.
std::vector<SpectrumPoint> power_spectrum(std::span<const float> samples, uint32_t sample_rate, double lowest, int points);

// The gain of a filter by its taps, at `points` frequencies of equal ratio from `lowest` Hz to half the rate.
std::vector<SpectrumPoint> filter_response(std::span<const float> taps, uint32_t sample_rate, double lowest, int points);

}  // namespace narrows::tools
