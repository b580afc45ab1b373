// SPDX-License-Identifier: Apache-2.0
// demo.cpp -- `narrows demo`: real speech through conv1d, elementwise and a trained LLTM. The order of things, and the text; each
// step is in a file of its own.
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <filesystem>
#include <fstream>

#include "commands.h"
#include "engine.h"
#include "lltm_training.h"
#include "report.h"
#include "sound_steps.h"
#include "terminal.h"
#include "wav.h"

namespace narrows::tools {
namespace {

constexpr const char* kSpoken[] = {"Front_Center", "Front_Left", "Front_Right", "Rear_Center",
                                   "Rear_Left",    "Rear_Right", "Side_Left",   "Side_Right"};
constexpr double kLongest = 600;             // seconds of sound that are used
constexpr size_t kMostSamples = 50'000'000;  // and samples
constexpr uint32_t kLowestRate = 2000;       // Hz: below, the band holds nothing
constexpr double kGain = 4;
constexpr double kLowestPlotted = 50;  // Hz
constexpr int kPlotted = 240;          // points of a spectrum

struct Missing : std::runtime_error {
  using std::runtime_error::runtime_error;
};

struct Speech {
  std::vector<Recording> recordings;
  uint32_t sample_rate = 0;
  std::string from, note;
};

Speech load_spoken(const std::string& folder) {
  Speech speech;
  for (const char* name : kSpoken) {
    const std::string path = folder + "/" + name + ".wav";
    if (!std::filesystem::exists(path))
      throw Missing("no " + path + ": install the package alsa-utils, which brings the recordings, or name a file with --wav");
    Wav wav = read_wav(path);
    if (speech.sample_rate != 0 && wav.sample_rate != speech.sample_rate)
      throw WavError(path + ": " + std::to_string(wav.sample_rate) + " Hz, the recordings before it " +
                     std::to_string(speech.sample_rate));
    speech.sample_rate = wav.sample_rate;
    speech.recordings.push_back({name, std::move(wav.samples)});
  }
  speech.from = std::to_string(speech.recordings.size()) + " recordings of " + folder;
  return speech;
}

Speech load_wav(const std::string& path) {
  Wav wav = read_wav(path);
  if (wav.sample_rate < kLowestRate)
    throw WavError(path + ": " + std::to_string(wav.sample_rate) + " Hz; speech needs " + std::to_string(kLowestRate) +
                   " and more");
  Speech speech;
  const size_t most = std::min(kMostSamples, static_cast<size_t>(kLongest * wav.sample_rate));
  if (wav.samples.size() > most) {
    wav.samples.resize(most);
    speech.note = "only the first " + std::to_string(most / wav.sample_rate) + " s of it are used";
  }
  speech.sample_rate = wav.sample_rate;
  speech.from = path + " (" + wav.encoding + (wav.channels == 2 ? ", stereo, mixed)" : ", mono)");
  speech.recordings.push_back({std::filesystem::path(path).filename().string(), std::move(wav.samples)});
  return speech;
}

void write_text(const std::string& path, const std::string& text) {
  std::ofstream out(path, std::ios::binary | std::ios::trunc);
  out << text;
  out.close();
  if (!out) throw std::runtime_error(path + ": cannot be written");
}

void make_folder(const std::string& path) {
  std::error_code error;
  std::filesystem::create_directories(path, error);
  if (error || !std::filesystem::is_directory(path))
    throw std::runtime_error(path + ": cannot be made a folder" + (error ? ": " + error.message() : ""));
}

// Steps (b) and (c): each sound is the one before, worked on.
void process_sound(const Engine& engine, const Speech& speech, const std::string& out, Report& report) {
  std::vector<float> joined;
  for (const Recording& r : speech.recordings) joined.insert(joined.end(), r.samples.begin(), r.samples.end());
  const uint32_t rate = speech.sample_rate;
  report.band = {300, std::min(3400.0, 0.42 * rate), 127};
  report.filter_response = filter_response(band_pass_taps(report.band, rate), rate, kLowestPlotted, kPlotted);
  report.gain = kGain;
  auto filtered = run_band_pass(engine, joined, report.band, rate, report);
  auto clipped = run_soft_clip(engine, filtered, kGain, report);
  report.sounds = {{"as recorded", "speech.wav", std::move(joined), {}},
                   {"band-passed", "bandpass.wav", std::move(filtered), {}},
                   {"soft-clipped", "softclip.wav", std::move(clipped), {}}};
  for (Sound& sound : report.sounds) {
    sound.spectrum = power_spectrum(sound.samples, rate, kLowestPlotted, kPlotted);
    sound.file = out + "/" + sound.file;
    write_wav(sound.file, sound.samples, rate);
    report.files.push_back(sound.file);
  }
}

void print_head(const Report& r) {
  std::printf("%s %s, backend %s on %s (%s)\n\n", bold("narrows demo").c_str(), r.version.c_str(), bold(r.backend).c_str(),
              r.device.c_str(), r.arch.c_str());
  std::printf("%s  conv1d of 0 to 14 with the filter 0 1 2 3, padded with 3 zeros at the end\n ", bold("First op").c_str());
  for (const float value : r.puzzle.got) std::printf(" %g", value);
  std::printf("   %s\n\n", r.puzzle.ok ? green("as expected").c_str() : red("NOT AS EXPECTED").c_str());
}

void print_sound(const Report& r) {
  const double seconds = static_cast<double>(r.sounds[0].samples.size()) / r.sample_rate;
  std::printf("%s  %s, %.1f s at %u Hz\n", bold("Sound").c_str(), printable(r.input).c_str(), seconds, r.sample_rate);
  if (!r.note.empty()) std::printf("  %s\n", yellow(r.note).c_str());
  std::printf("  band-pass  conv1d keeps %.0f to %.0f Hz, %d taps\n", r.band.low, r.band.high, static_cast<int>(r.band.taps));
  std::printf("  soft clip  elementwise: tanh(%g x)\n\n", r.gain);
}

void print_training(const Training& t) {
  if (!t.done) {
    std::printf("%s  no LLTM was trained: %s\n\n", bold("Prediction").c_str(), t.why_not.c_str());
    return;
  }
  std::printf("%s  an LLTM, a kind of LSTM, learns the next %.0f ms of speech: the levels of %d frequency bands in dB\n",
              bold("Prediction").c_str(), 1000 * t.frame_seconds, static_cast<int>(t.bands));
  std::printf("  trained on %s: %d states, %d epochs over %d rows in %s, %.0f steps/s\n", printable(t.trained_on).c_str(),
              static_cast<int>(t.states), t.epochs, static_cast<int>(t.rows), duration(t.seconds).c_str(), t.lltm_steps_per_second);
  char verdict[80];
  std::snprintf(verdict, sizeof verdict, "%.1f %% %s", 100 * std::abs(t.improvement), t.beats_persistence ? "less" : "MORE");
  std::printf("  tested on %s: mean squared error %.2f dB^2, %s than to repeat the last %.0f ms (%.2f dB^2)\n",
              printable(t.held_out).c_str(), t.model_mse, (t.beats_persistence ? green(verdict) : red(verdict)).c_str(),
              1000 * t.frame_seconds, t.persistence_mse);
  if (!t.turns.empty()) std::printf("  tested on each recording in turn, its error beside that of repeating the last frame:\n   ");
  for (const Turn& turn : t.turns)
    std::printf(" %s %+.1f %%%s", turn.held_out.c_str(), -100 * turn.improvement, &turn == &t.turns.back() ? "\n" : ",");
  std::printf("\n");
}

void print_tables(const Report& r) {
  std::printf("%s\n", bold("What ran where").c_str());
  for (const Ran& ran : r.ran)
    std::printf("  %-10s %-17s %-8s %-14s %-34s %10s %15s  %s\n", ran.step.c_str(), ran.operation.c_str(), ran.backend.c_str(),
                ran.kernel.c_str(), ran.shapes.c_str(), duration(ran.seconds).c_str(), rate_text(ran).c_str(),
                real_time_text(ran, r.sample_rate).c_str());
  std::printf("\n%s\n", bold("Agreement with float64 loops").c_str());
  for (const Agreement& a : r.checks)
    std::printf("  %-26s %8lld elements   largest error %.1e   relative %.1e   %s\n", a.what.c_str(),
                static_cast<long long>(a.elements), a.largest_error, a.relative_error,
                a.ok ? green("agrees").c_str() : red("DIFFERS").c_str());
  std::printf("\n%s\n", bold("Files").c_str());
  for (const std::string& file : r.files) std::printf("  %s\n", printable(file).c_str());
  std::printf("\n%s in %s\n", r.ok() ? green("All checks passed").c_str() : red("A check failed").c_str(),
              duration(r.seconds).c_str());
}

std::string command_line(const DemoOptions& o) {
  std::string line = "narrows demo";
  if (!o.wav.empty()) line += " --wav " + o.wav;
  if (!o.backend.empty()) line += " --backend " + o.backend;
  if (o.epochs > 0) line += " --epochs " + std::to_string(o.epochs);
  return line + " --seed " + std::to_string(o.seed);
}

Report make_report(const DemoOptions& options, const Speech& speech) {
  const auto start = std::chrono::steady_clock::now();
  const Runtime runtime(options.plugin_path);
  const Engine engine(runtime, options.backend);
  Report report;
  report.version = nw_version(), report.device = engine.device_name(), report.arch = engine.arch(), report.seed = options.seed;
  report.command = command_line(options);
  report.input = speech.from, report.note = speech.note, report.sample_rate = speech.sample_rate;
  report.baseline_required = options.wav.empty();
  for (const Recording& r : speech.recordings) report.recordings.push_back(r.name);

  report.puzzle = run_puzzle(engine);
  make_folder(options.out);
  process_sound(engine, speech, options.out, report);
  report.backend = report.ran.front().backend;
  const size_t recordings = speech.recordings.size();
  const auto input = recordings > 1 ? hold_out(speech.recordings, recordings - 1, speech.sample_rate)
                                    : split_recording(speech.recordings.front(), speech.sample_rate);
  train_on_speech(engine, input, options.seed, options.epochs, report);
  if (recordings > 1 && report.training.done)
    report.training.turns = hold_out_each(engine, speech.recordings, speech.sample_rate, options.seed, report.training.epochs);
  report.files.push_back(options.out + "/demo.html");
  report.seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  write_text(report.files.back(), to_html(report));
  return report;
}

int complain(int code, const char* what) {
  std::fprintf(stderr, "narrows demo: %s\n", printable(what).c_str());
  return code;
}

}  // namespace

int run_demo(const DemoOptions& options) {
  try {
    const Speech speech = options.wav.empty() ? load_spoken(options.speech) : load_wav(options.wav);
    const Report report = make_report(options, speech);
    if (options.json) {
      std::printf("%s\n", to_json(report).c_str());
    } else {
      print_head(report), print_sound(report), print_training(report.training), print_tables(report);
    }
    return report.ok() ? kOk : kCheckFailed;
  } catch (const Missing& e) {
    return complain(kUnavailable, e.what());
  } catch (const WavError& e) {
    return complain(kBadUsage, e.what());
  } catch (const StatusError& e) {
    return complain(e.status == NW_UNAVAILABLE || e.status == NW_UNSUPPORTED ? kUnavailable : kFailed, e.what());
  } catch (const std::exception& e) {
    return complain(kFailed, e.what());
  }
}

}  // namespace narrows::tools
