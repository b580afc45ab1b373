// SPDX-License-Identifier: Apache-2.0
// lltm_training.cpp -- recordings to sequences, epochs, the verdict. See lltm_training.h.
#include "lltm_training.h"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <numbers>

#include "lltm_model.h"
#include "log_bands.h"
#include "terminal.h"

namespace narrows::tools {
namespace {

constexpr int64_t kBands = 20, kStates = 32, kTruncation = 16;
constexpr double kFrameSeconds = 0.02;
constexpr int64_t kFewestFrames = 100, kFewestHeldOut = 25;
// The same speech cut into frames at other places is other training data: this many cuts, equally far apart.
constexpr int64_t kCuts = 4;
// Few: with seven recordings of a second and a half more would be learnt by heart.
constexpr int kEpochs = 30;
constexpr double kLearningRate = 0.15, kMomentum = 0.9, kDecay = 1e-4;
constexpr double kDecibels = 10 / std::numbers::ln10;  // of a natural logarithm of an energy

using Clock = std::chrono::steady_clock;
double since(Clock::time_point start) { return std::chrono::duration<double>(Clock::now() - start).count(); }

// Log-band energies x are trained on as (x - mean of the band) / deviation, one deviation for all bands.
struct Scale {
  std::vector<double> mean;
  double deviation = 1;
};

Scale scale_of(const Engine& engine, const std::vector<Tensor>& frames) {
  Scale scale{std::vector<double>(kBands), 0};
  std::vector<double> squares(kBands);
  double count = 0;
  for (const Tensor& tensor : frames) {
    const auto values = engine.download(tensor);
    const int64_t length = tensor.size(1);
    count += static_cast<double>(length);
    for (int64_t i = 0; i < kBands * length; ++i) {
      scale.mean[i / length] += values[i];
      squares[i / length] += double{values[i]} * values[i];
    }
  }
  for (int64_t band = 0; band < kBands; ++band) {
    scale.mean[band] /= count;
    scale.deviation += (squares[band] / count - scale.mean[band] * scale.mean[band]) / kBands;
  }
  scale.deviation = std::sqrt(std::max(scale.deviation, 1e-12));
  return scale;
}

// One row per tensor of (bands, frames).
Sequences make_sequences(const Engine& engine, const std::vector<Tensor>& frames, const Scale& scale) {
  Sequences s;
  s.rows = static_cast<int64_t>(frames.size());
  s.features = kBands;
  for (const Tensor& row : frames) s.steps = std::max(s.steps, row.size(1) - 1);
  const int64_t steps = s.steps, rows = s.rows;
  const Tensor all = engine.zeros({steps + 1, rows, kBands});
  std::vector<float> shift(kBands), weight(static_cast<size_t>(steps * rows));
  for (int64_t band = 0; band < kBands; ++band) shift[band] = static_cast<float>(-scale.mean[band] / scale.deviation);
  const Tensor shifts = engine.upload(shift, {1, kBands});
  for (int64_t b = 0; b < rows; ++b) {
    const int64_t length = frames[b].size(1);
    const Tensor row = all.view(b * kBands, {length, kBands}, {rows * kBands, 1});
    engine.run(elementwise(NW_EW_FMA, {frames[b].transposed(), 1 / scale.deviation, shifts}, row));
    for (int64_t t = 0; t + 1 < length; ++t) weight[t * rows + b] = 1;
    s.predictions += length - 1;
  }
  s.input = all.slice(0, 0, steps);
  s.target = engine.empty({steps, rows, kBands});
  engine.run(elementwise(NW_EW_SUB, {all.slice(0, 1, steps), s.input}, s.target));
  s.weight = engine.upload(weight, {steps, rows, 1});
  return s;
}

// Mean squared error of the predicted changes; of persistence, if none are given.
double mean_square(const Engine& engine, const Sequences& s, std::span<const float> predicted) {
  const auto target = engine.download(s.target), weight = engine.download(s.weight);
  double sum = 0;
  for (size_t i = 0; i < target.size(); ++i) {
    const double error = double{target[i]} - (predicted.empty() ? 0 : predicted[i]);
    sum += weight[i / kBands] * error * error;
  }
  return sum / static_cast<double>(s.predictions * kBands);
}

std::vector<Tensor> frames_of(const Engine& engine, const LogBands& bands, const std::vector<float>& samples, int64_t cuts) {
  std::vector<Tensor> rows;
  const auto length = static_cast<int64_t>(samples.size());
  const Tensor signal = engine.upload(samples, {length});
  for (int64_t cut = 0; cut < cuts; ++cut) {
    const int64_t begin = cut * bands.frame_samples() / kCuts;
    if (bands.frames(length - begin) >= 2) rows.push_back(bands.compute(signal.slice(0, begin, length - begin)));
  }
  return rows;
}

void judge(const Engine& engine, const Sequences& held_out, const Scale& scale, std::span<const float> predicted, Training& t) {
  const auto input = engine.download(held_out.input), target = engine.download(held_out.target);
  const double unit = scale.deviation * kDecibels;
  for (int64_t step = 0; step < held_out.steps; ++step) {
    double error = 0, persistence = 0;
    for (int64_t band = 0; band < kBands; ++band) {
      const int64_t i = step * kBands + band;
      const double offset = scale.mean[band] * kDecibels;
      t.real.push_back(static_cast<float>((double{input[i]} + target[i]) * unit + offset));
      t.predicted.push_back(static_cast<float>((double{input[i]} + predicted[i]) * unit + offset));
      error += std::pow((double{target[i]} - predicted[i]) * unit, 2) / kBands;
      persistence += std::pow(target[i] * unit, 2) / kBands;
    }
    t.frame_error.push_back(std::sqrt(error));
    t.frame_persistence.push_back(std::sqrt(persistence));
    t.model_mse += error / static_cast<double>(held_out.steps);
    t.persistence_mse += persistence / static_cast<double>(held_out.steps);
  }
  t.improvement = 1 - t.model_mse / t.persistence_mse;
  t.beats_persistence = t.model_mse < t.persistence_mse;  // false for a NaN
}

// Elements are sums of terms that may cancel: a small one carries the rounding of its large terms, so the largest of them sets
// atol.
void add_check(Report& report, const char* what, std::span<const float> got, std::span<const double> want) {
  double scale = 1;
  for (const double value : want) scale = std::max(scale, std::abs(value));
  report.checks.push_back(compare(what, got, want, 2e-6 * scale, 2e-5));
}

void add_timed(Report& report, const char* step, const std::vector<LltmModel::Timed>& timed) {
  for (const LltmModel::Timed& t : timed)
    report.ran.push_back({step, t.op, t.shapes, t.chosen.backend, t.chosen.kernel, t.seconds, 0, t.flops, 0});
}

void check_cell(const LltmModel::CellCheck& c, Report& report) {
  const LltmResult forward = reference_lltm(c.step);
  const LltmGradients backward = reference_lltm_backward(c.step, c.grad_h, c.grad_cell);
  add_check(report, "lltm: new_h", c.new_h, forward.new_h);
  add_check(report, "lltm: new_cell", c.new_cell, forward.new_cell);
  add_check(report, "lltm: gates", c.gates, forward.gates);
  add_check(report, "lltm_backward: d_input", c.d_input, backward.input);
  add_check(report, "lltm_backward: d_weights", c.d_weights, backward.weights);
  add_check(report, "lltm_backward: d_bias", c.d_bias, backward.bias);
  add_check(report, "lltm_backward: d_old_h", c.d_old_h, backward.old_h);
  add_check(report, "lltm_backward: d_old_cell", c.d_old_cell, backward.old_cell);
  add_timed(report, "LLTM", c.timed);
}

void check_read_out(const LltmModel::ReadOutCheck& c, Report& report) {
  const LinearGradients want = reference_linear_backward(c.grad_y, c.x, c.w, c.rows);
  add_check(report, "conv1d_backward: grad_x", c.d_x, want.x);
  add_check(report, "conv1d_backward: grad_w", c.d_w, want.w);
  add_check(report, "conv1d_backward: grad_bias", c.d_bias, want.bias);
  add_timed(report, "read-out", c.timed);
}

void time_bank(const Engine& engine, const LogBands& bands, const std::vector<float>& samples, Report& report) {
  const int64_t frames = bands.frames(static_cast<int64_t>(samples.size())), length = frames * bands.frame_samples();
  const Tensor signal = engine.upload(std::span(samples).first(static_cast<size_t>(length)), {1, length});
  const Tensor out = engine.empty({2 * kBands, frames * LogBands::kHopsPerFrame});
  const Operation bank = bands.bank_operation(signal, out);
  const Chosen chosen = engine.chosen(bank);
  Ran ran{"log bands", "conv1d", "x " + signal.shape_text() + ", w " + bands.bank().shape_text(), chosen.backend, chosen.kernel};
  ran.seconds = engine.seconds_per_run(bank);
  ran.samples = static_cast<double>(length);
  ran.flops = 2.0 * static_cast<double>(out.elements()) * static_cast<double>(bands.bank().size(2));
  report.ran.push_back(ran);
}

// Sequences to train on and to be judged by.
struct Lesson {
  Scale scale;
  Sequences training, held_out;
  double training_persistence = 0, held_out_persistence = 0;  // mean squares
};

Lesson make_lesson(const Engine& engine, const LogBands& bands, const TrainingInput& input) {
  std::vector<Tensor> rows;
  for (const Recording& r : input.training)
    for (Tensor& row : frames_of(engine, bands, r.samples, kCuts)) rows.push_back(std::move(row));
  Lesson lesson;
  lesson.scale = scale_of(engine, rows);
  lesson.training = make_sequences(engine, rows, lesson.scale);
  lesson.held_out = make_sequences(engine, frames_of(engine, bands, input.held_out.samples, 1), lesson.scale);
  lesson.training_persistence = mean_square(engine, lesson.training, {});
  lesson.held_out_persistence = mean_square(engine, lesson.held_out, {});
  return lesson;
}

// The learning rate falls to 0 along a line. after_epoch(epoch, error on the training sequences over persistence's).
template <class AfterEpoch>
void train(LltmModel& model, const Lesson& lesson, int epochs, AfterEpoch&& after_epoch) {
  for (int epoch = 0; epoch < epochs; ++epoch) {
    const double rate = kLearningRate * (1 - static_cast<double>(epoch) / epochs);
    after_epoch(epoch, model.train(lesson.training, kTruncation, {rate, kMomentum, kDecay}) / lesson.training_persistence);
  }
}

double held_out_error(const Engine& engine, LltmModel& model, const Lesson& lesson) {
  return mean_square(engine, lesson.held_out, model.predict(lesson.held_out)) / lesson.held_out_persistence;
}

}  // namespace

TrainingInput hold_out(const std::vector<Recording>& recordings, size_t which, uint32_t sample_rate) {
  TrainingInput input{recordings, recordings[which], sample_rate, std::to_string(recordings.size() - 1) + " recordings"};
  input.training.erase(input.training.begin() + static_cast<ptrdiff_t>(which));
  return input;
}

TrainingInput split_recording(const Recording& recording, uint32_t sample_rate) {
  const size_t used = recording.samples.size(), training = used * 4 / 5;
  const size_t rows = std::clamp<size_t>(training / sample_rate, 1, 16);
  TrainingInput input;
  input.sample_rate = sample_rate;
  const auto at = [&](size_t sample) { return recording.samples.begin() + static_cast<ptrdiff_t>(sample); };
  for (size_t row = 0; row < rows; ++row)
    input.training.push_back({recording.name, {at(training * row / rows), at(training * (row + 1) / rows)}});
  input.held_out = {"the last 20 % of " + recording.name, {at(training), at(used)}};
  input.trained_on = "the first 80 % of " + recording.name;
  return input;
}

void train_on_speech(const Engine& engine, const TrainingInput& input, uint32_t seed, int epochs, Report& report) {
  Training& t = report.training;
  t.trained_on = input.trained_on, t.held_out = input.held_out.name;
  t.states = kStates, t.bands = kBands, t.truncation = kTruncation;
  const LogBands bands(engine, input.sample_rate, kBands, kFrameSeconds);
  t.frame_seconds = static_cast<double>(bands.frame_samples()) / input.sample_rate;
  for (const Recording& r : input.training) t.training_frames += bands.frames(static_cast<int64_t>(r.samples.size()));
  t.held_out_frames = bands.frames(static_cast<int64_t>(input.held_out.samples.size()));
  if (t.training_frames < kFewestFrames || t.held_out_frames < kFewestHeldOut) {
    t.why_not = "too short to train on: " + std::to_string(t.training_frames) + " frames to train on and " +
                std::to_string(t.held_out_frames) + " to judge by; at least " + std::to_string(kFewestFrames) + " and " +
                std::to_string(kFewestHeldOut) + " are needed (2.5 s)";
    return;
  }

  const Lesson lesson = make_lesson(engine, bands, input);
  if (!(lesson.training_persistence > 0 && lesson.held_out_persistence > 0)) {
    t.why_not = "nothing changes in it from frame to frame: there is nothing to predict";
    return;
  }
  t.rows = lesson.training.rows;
  t.epochs = epochs > 0 ? epochs : kEpochs;

  LltmModel model(engine, {kBands, kStates}, seed);
  Progress progress("training the LLTM", t.epochs);
  const auto start = Clock::now();
  auto epoch_start = start;
  double training_seconds = 0;
  train(model, lesson, t.epochs, [&](int epoch, double error) {
    training_seconds += since(epoch_start);
    t.curve.push_back({error, held_out_error(engine, model, lesson)});
    progress.update(epoch + 1, "held-out error " + std::to_string(t.curve.back().held_out) + " of persistence's");
    epoch_start = Clock::now();
  });
  judge(engine, lesson.held_out, lesson.scale, model.predict(lesson.held_out), t);
  t.seconds = since(start);
  t.lltm_steps_per_second = static_cast<double>(lesson.training.steps * lesson.training.rows * t.epochs) / training_seconds;
  t.done = true;
  time_bank(engine, bands, input.held_out.samples, report);
  check_cell(model.check_cell(lesson.training), report);
  check_read_out(model.check_read_out(lesson.training, kTruncation), report);
}

std::vector<Turn> hold_out_each(const Engine& engine, const std::vector<Recording>& recordings, uint32_t sample_rate, uint32_t seed,
                                int epochs) {
  std::vector<Turn> turns;
  const LogBands bands(engine, sample_rate, kBands, kFrameSeconds);
  Progress progress("each recording held out in turn", static_cast<int>(recordings.size()));
  for (size_t which = 0; which < recordings.size(); ++which) {
    const Lesson lesson = make_lesson(engine, bands, hold_out(recordings, which, sample_rate));
    LltmModel model(engine, {kBands, kStates}, seed);
    train(model, lesson, epochs, [](int, double) {});
    turns.push_back({recordings[which].name, 1 - held_out_error(engine, model, lesson)});
    progress.update(static_cast<int>(which) + 1);
  }
  return turns;
}

}  // namespace narrows::tools
