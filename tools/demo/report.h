// SPDX-License-Identifier: Apache-2.0
// report.h -- what `narrows demo` found out: filled in step by step, then told three times: as text, as JSON, as a page of HTML.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "reference.h"
#include "spectrum.h"

namespace narrows::tools {

struct Recording {
  std::string name;
  std::vector<float> samples;
};

// One operation at the size that the demo uses it, on the device that the demo uses.
struct Ran {
  std::string step;       // "band-pass"
  std::string operation;  // "conv1d"
  std::string shapes;     // "x (562176) * w (127) -> (562176)"
  std::string backend, kernel;
  double seconds = 0;  // of one run
  double samples = 0;  // of sound that one run takes in; 0: not sound
  double flops = 0;    // of one run; 0: memory-bound, told by its bytes
  double bytes = 0;    // read and written by one run
};

struct Puzzle {
  std::vector<float> got, expected;
  bool ok = false;
};

struct Sound {
  std::string title;  // "band-passed"
  std::string file;   // the WAV written
  std::vector<float> samples;
  std::vector<SpectrumPoint> spectrum;
};

struct Band {
  double low = 0, high = 0;  // Hz
  int64_t taps = 0;
};

// One epoch: mean squared errors of the predicted change, over those of predicting no change.
struct Epoch {
  double training = 0, held_out = 0;
};

// What came out with another recording held out.
struct Turn {
  std::string held_out;
  double improvement = 0;
};

struct Training {
  bool done = false;
  std::string why_not;  // if not done
  std::string trained_on, held_out;
  int64_t states = 0, bands = 0, rows = 0, training_frames = 0, held_out_frames = 0, truncation = 0;
  double frame_seconds = 0;
  int epochs = 0;
  double seconds = 0;
  double lltm_steps_per_second = 0;  // of one row: forward and backward, optimiser and all
  std::vector<Epoch> curve;
  double persistence_mse = 0, model_mse = 0;  // on the held-out frames, dB^2
  double improvement = 0;                     // 1 - model / persistence
  bool beats_persistence = false;
  std::vector<Turn> turns;  // empty where there is one recording only
  // The held-out recording in dB, frame by frame, `bands` values each; the frame that was predicted and what came.
  std::vector<float> real, predicted;
  std::vector<double> frame_error, frame_persistence;  // RMS over the bands, dB
};

struct Report {
  std::string version, backend, device, arch, command;
  uint32_t seed = 0;
  std::string input;               // what was listened to
  std::string note;                // what was left out of it; "": nothing
  bool baseline_required = false;  // not beating persistence counts as a failed check
  uint32_t sample_rate = 0;
  std::vector<std::string> recordings;
  Puzzle puzzle;
  Band band;
  std::vector<SpectrumPoint> filter_response;
  double gain = 0;
  std::vector<Sound> sounds;  // input, band-passed, clipped
  Training training;
  std::vector<Ran> ran;
  std::vector<Agreement> checks;
  std::vector<std::string> files;
  double seconds = 0;

  bool ok() const;
};

std::string duration(double seconds);                              // "12.3 us"
std::string rate_text(const Ran& ran);                             // "3.21 GFLOP/s"
std::string real_time_text(const Ran& ran, uint32_t sample_rate);  // "1.2 million x real time"; "" if it is not about sound
std::string printable(const std::string& text);  // valid UTF-8 without control characters: a file's name can hold anything

std::string to_json(const Report& report);
std::string to_html(const Report& report);

}  // namespace narrows::tools
