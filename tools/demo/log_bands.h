// SPDX-License-Identifier: Apache-2.0
// log_bands.h -- the energies of a recording in frequency bands, frame by frame, by the runtime's ops: what the LLTM listens to.
#pragma once

#include "engine.h"

namespace narrows::tools {

// A bank of windowed sinusoids (two to a band, a quarter turn apart) as conv1d, then square, add, a mean over the frame as a
// depthwise conv1d, and log. The bands' centres are equally spaced on the mel scale.
class LogBands {
 public:
  LogBands(const Engine& engine, uint32_t sample_rate, int64_t bands, double frame_seconds);

  int64_t bands() const { return bands_; }
  int64_t frame_samples() const { return hop_ * kHopsPerFrame; }
  int64_t frames(int64_t samples) const { return samples / frame_samples(); }
  const std::vector<double>& centres() const { return centres_; }  // Hz

  // Natural logarithms of energies, (bands, frames), of the whole frames in `signal` (samples).
  Tensor compute(const Tensor& signal) const;
  // The first step of it, for the report: the bank over `signal`, into `out` (2 * bands, frames * kHopsPerFrame).
  Operation bank_operation(const Tensor& signal, const Tensor& out) const;

  static constexpr int64_t kHopsPerFrame = 4;
  const Tensor& bank() const { return bank_; }

 private:
  const Engine& engine_;
  int64_t bands_, hop_;
  std::vector<double> centres_;
  Tensor bank_;  // (2 * bands, 1, taps): the cosines, then the sines
  Tensor mean_;  // (bands, 1, kHopsPerFrame)
};

}  // namespace narrows::tools
