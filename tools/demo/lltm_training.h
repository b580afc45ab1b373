// SPDX-License-Identifier: Apache-2.0
// lltm_training.h -- the demo's last step: an LLTM learns to predict the next frame of speech, and is judged on a recording that
// it was not trained on, against the guess that nothing changes (persistence).
#pragma once

#include "engine.h"
#include "report.h"

namespace narrows::tools {

struct TrainingInput {
  std::vector<Recording> training;
  Recording held_out;
  uint32_t sample_rate = 0;
  std::string trained_on;  // in words
};

// All recordings but one, which is held out.
TrainingInput hold_out(const std::vector<Recording>& recordings, size_t which, uint32_t sample_rate);
// One recording: trained on its first 80 %, cut into rows of a second and more, judged on the rest.
TrainingInput split_recording(const Recording& recording, uint32_t sample_rate);

// Fills report.training, and adds to report.ran and report.checks. epochs 0: the default.
void train_on_speech(const Engine& engine, const TrainingInput& input, uint32_t seed, int epochs, Report& report);

// The same training once for each recording, which is then the one held out: no luck of the draw.
std::vector<Turn> hold_out_each(const Engine& engine, const std::vector<Recording>& recordings, uint32_t sample_rate, uint32_t seed,
                                int epochs);

}  // namespace narrows::tools
