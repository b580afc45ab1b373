// SPDX-License-Identifier: Apache-2.0
// report.cpp -- the report's verdict, its numbers in words, and its JSON. See report.h.
#include "report.h"

#include <algorithm>
#include <cstdio>
#include <nlohmann/json.hpp>

namespace narrows::tools {
namespace {

using nlohmann::json;

std::string format(const char* pattern, double value, const char* unit) {
  char text[64];
  std::snprintf(text, sizeof text, pattern, value, unit);
  return text;
}

json json_of(const Ran& ran, uint32_t sample_rate) {
  json j{{"step", ran.step},       {"operation", ran.operation}, {"shapes", ran.shapes},
         {"backend", ran.backend}, {"kernel", ran.kernel},       {"seconds", ran.seconds}};
  if (ran.samples > 0) {
    j["samples_per_second"] = ran.samples / ran.seconds;
    j["times_real_time"] = ran.samples / ran.seconds / sample_rate;
  }
  if (ran.flops > 0) j["gflop_per_second"] = ran.flops / ran.seconds / 1e9;
  if (ran.bytes > 0) j["gb_per_second"] = ran.bytes / ran.seconds / 1e9;
  return j;
}

json json_of(const Agreement& a) {
  return {{"what", a.what}, {"elements", a.elements}, {"largest_error", a.largest_error},   {"relative_error", a.relative_error},
          {"atol", a.atol}, {"rtol", a.rtol},         {"relative_limit", a.relative_limit}, {"ok", a.ok}};
}

json json_of(const Training& t) {
  if (!t.done) return {{"done", false}, {"why_not", t.why_not}};
  json curve = json::array();
  for (const Epoch& e : t.curve) curve.push_back({e.training, e.held_out});
  json turns = json::array();
  for (const Turn& turn : t.turns) turns.push_back({{"held_out", turn.held_out}, {"improvement", turn.improvement}});
  return {{"done", true},
          {"trained_on", t.trained_on},
          {"held_out", t.held_out},
          {"states", t.states},
          {"bands", t.bands},
          {"frame_seconds", t.frame_seconds},
          {"rows", t.rows},
          {"truncation", t.truncation},
          {"training_frames", t.training_frames},
          {"held_out_frames", t.held_out_frames},
          {"epochs", t.epochs},
          {"seconds", t.seconds},
          {"steps_per_second", t.lltm_steps_per_second},
          {"persistence_mse_db2", t.persistence_mse},
          {"model_mse_db2", t.model_mse},
          {"improvement", t.improvement},
          {"beats_persistence", t.beats_persistence},
          {"each_held_out", turns},
          {"curve_training_and_held_out_over_persistence", curve}};
}

}  // namespace

bool Report::ok() const {
  const bool agree = std::all_of(checks.begin(), checks.end(), [](const Agreement& a) { return a.ok; });
  return puzzle.ok && agree && (!baseline_required || training.beats_persistence);
}

std::string duration(double seconds) {
  if (seconds >= 1) return format("%.2f %s", seconds, "s");
  if (seconds >= 1e-3) return format("%.2f %s", seconds * 1e3, "ms");
  return format("%.1f %s", seconds * 1e6, "us");
}

std::string rate_text(const Ran& ran) {
  return ran.flops > 0 ? format("%.2f %s", ran.flops / ran.seconds / 1e9, "GFLOP/s")
                       : format("%.2f %s", ran.bytes / ran.seconds / 1e9, "GB/s");
}

std::string real_time_text(const Ran& ran, uint32_t sample_rate) {
  if (ran.samples == 0) return "";
  const double times = ran.samples / ran.seconds / sample_rate;
  return times >= 1e6 ? format("%.1f %s", times / 1e6, "million x real time") : format("%.0f %s", times, "x real time");
}

std::string printable(const std::string& text) {
  // The JSON library replaces what is not UTF-8; what it escapes is then taken out of the escapes again.
  std::string clean = json::parse(json(text).dump(-1, ' ', false, json::error_handler_t::replace)).get<std::string>();
  for (char& c : clean)
    if (static_cast<unsigned char>(c) < 0x20 || c == 0x7f) c = '?';
  return clean;
}

std::string to_json(const Report& r) {
  json ran = json::array(), checks = json::array();
  for (const Ran& entry : r.ran) ran.push_back(json_of(entry, r.sample_rate));
  for (const Agreement& a : r.checks) checks.push_back(json_of(a));
  const size_t samples = r.sounds.empty() ? 0 : r.sounds.front().samples.size();
  const json j{
      {"version", r.version},
      {"ok", r.ok()},
      {"backend", r.backend},
      {"device", r.device},
      {"arch", r.arch},
      {"seed", r.seed},
      {"input",
       {{"from", r.input}, {"recordings", r.recordings}, {"sample_rate", r.sample_rate}, {"samples", samples}, {"note", r.note}}},
      {"puzzle", {{"got", r.puzzle.got}, {"expected", r.puzzle.expected}, {"ok", r.puzzle.ok}}},
      {"band_pass", {{"low_hz", r.band.low}, {"high_hz", r.band.high}, {"taps", r.band.taps}}},
      {"soft_clip", {{"gain", r.gain}}},
      {"lltm", json_of(r.training)},
      {"ran", ran},
      {"checks", checks},
      {"files", r.files},
      {"seconds", r.seconds}};
  return j.dump(2, ' ', false, json::error_handler_t::replace);
}

}  // namespace narrows::tools
