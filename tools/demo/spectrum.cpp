// SPDX-License-Identifier: Apache-2.0
// spectrum.cpp -- a radix-2 FFT and Welch's average. See spectrum.h.
#include "spectrum.h"

#include <algorithm>
#include <cmath>
#include <complex>
#include <numbers>

namespace narrows::tools {
namespace {

using Complex = std::complex<double>;

void fft(std::vector<Complex>& a) {
  const size_t n = a.size();
  for (size_t i = 1, j = 0; i < n; ++i) {
    size_t bit = n >> 1;
    for (; j & bit; bit >>= 1) j ^= bit;
    j ^= bit;
    if (i < j) std::swap(a[i], a[j]);
  }
  for (size_t length = 2; length <= n; length <<= 1) {
    const Complex step = std::polar(1.0, -2 * std::numbers::pi / static_cast<double>(length));
    for (size_t begin = 0; begin < n; begin += length) {
      Complex factor = 1;
      for (size_t k = 0; k < length / 2; ++k, factor *= step) {
        const Complex u = a[begin + k], v = a[begin + k + length / 2] * factor;
        a[begin + k] = u + v;
        a[begin + k + length / 2] = u - v;
      }
    }
  }
}

// Power per bin, so scaled that a full-scale sine has 1 in its bin.
std::vector<double> welch(std::span<const float> samples, size_t window) {
  std::vector<double> power(window / 2 + 1);
  std::vector<Complex> block(window);
  size_t blocks = 0;
  for (size_t begin = 0; begin == 0 || begin + window <= samples.size(); begin += window / 2, ++blocks) {
    for (size_t i = 0; i < window; ++i) {
      const double hann = 0.5 - 0.5 * std::cos(2 * std::numbers::pi * static_cast<double>(i) / static_cast<double>(window));
      block[i] = begin + i < samples.size() ? hann * samples[begin + i] : 0;
    }
    fft(block);
    for (size_t k = 0; k < power.size(); ++k) power[k] += std::norm(block[k]);
  }
  const double full_scale = std::pow(static_cast<double>(window) / 4, 2);
  for (double& p : power) p /= full_scale * static_cast<double>(blocks);
  return power;
}

}  // namespace

std::vector<SpectrumPoint> power_spectrum(std::span<const float> samples, uint32_t sample_rate, double lowest, int points) {
  size_t window = 8192;
  while (window > 256 && window > samples.size()) window /= 2;
  const auto power = welch(samples, window);
  const double bin = static_cast<double>(sample_rate) / static_cast<double>(window);
  const double highest = sample_rate / 2.0, ratio = std::pow(highest / lowest, 1.0 / points);
  std::vector<SpectrumPoint> spectrum;
  for (int i = 0; i < points; ++i) {
    const double from = lowest * std::pow(ratio, i), to = from * ratio;
    const auto first = std::min(static_cast<size_t>(std::lround(from / bin)), power.size() - 1);
    const auto last = std::clamp(static_cast<size_t>(std::lround(to / bin)), first + 1, power.size());
    double mean = 0;
    for (size_t k = first; k < last; ++k) mean += power[k] / static_cast<double>(last - first);
    spectrum.push_back({std::sqrt(from * to), 10 * std::log10(mean + 1e-14)});
  }
  return spectrum;
}

std::vector<SpectrumPoint> filter_response(std::span<const float> taps, uint32_t sample_rate, double lowest, int points) {
  std::vector<SpectrumPoint> response;
  for (int i = 0; i < points; ++i) {
    const double hertz = lowest * std::pow(sample_rate / 2.0 / lowest, (i + 0.5) / points);
    Complex sum = 0;
    for (size_t j = 0; j < taps.size(); ++j)
      sum += double{taps[j]} * std::polar(1.0, -2 * std::numbers::pi * hertz / sample_rate * static_cast<double>(j));
    response.push_back({hertz, 20 * std::log10(std::abs(sum) + 1e-9)});
  }
  return response;
}

}  // namespace narrows::tools
