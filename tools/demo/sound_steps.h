// SPDX-License-Identifier: Apache-2.0
// sound_steps.h -- the steps of the demo that a recording goes through: a filter and a soft clip, each checked and timed.
#pragma once

#include "engine.h"
#include "report.h"

namespace narrows::tools {

// MAX puzzle 17's example: conv1d of 0 .. 14 with 0 1 2 3, as if three zeros followed.
Puzzle run_puzzle(const Engine& engine);

// The difference of two windowed-sinc low-pass filters (Hamming's window), each of gain 1 at 0 Hz, so that it stops 0 Hz exactly.
std::vector<float> band_pass_taps(const Band& band, uint32_t sample_rate);

// conv1d with the filter, as long as the input and in step with it.
std::vector<float> run_band_pass(const Engine& engine, const std::vector<float>& samples, const Band& band, uint32_t sample_rate,
                                 Report& report);
// tanh(gain * x) by two elementwise ops.
std::vector<float> run_soft_clip(const Engine& engine, const std::vector<float>& samples, double gain, Report& report);

}  // namespace narrows::tools
