// SPDX-License-Identifier: Apache-2.0
// html.cpp -- the report as one page of HTML that needs nothing else: no script, no font, no picture from anywhere.
#include <algorithm>
#include <cmath>
#include <cstdio>

#include "report.h"
#include "svg.h"
#include "wav.h"

namespace narrows::tools {
namespace {

constexpr const char* kStyle = R"(
:root{color-scheme:light dark;--bg:#f6f5f1;--card:#fff;--ink:#1c1d22;--soft:#686b76;--line:#e3e1da;--c1:#1f5fbf;--c2:#d1495b;
  --c3:#1a8f7d;--band:#1f5fbf14;--ok:#1a7f4b;--bad:#c62d2d}
@media (prefers-color-scheme:dark){
  :root{--bg:#121318;--card:#1b1d24;--ink:#e9e8e4;--soft:#9a9daa;--line:#2f323c;--c1:#7fb0ff;--c2:#ff8a98;--c3:#5fd4bf;
    --band:#7fb0ff1c;--ok:#5ad196;--bad:#ff7b7b}
}
*{box-sizing:border-box}
body{margin:0;background:var(--bg);color:var(--ink);font:16px/1.55 system-ui,-apple-system,"Segoe UI",Roboto,sans-serif;
  font-variant-numeric:tabular-nums}
main{max-width:1060px;margin:0 auto;padding:40px 20px 64px}
h1{font-size:34px;line-height:1.15;margin:0 0 6px;letter-spacing:-.02em}
h2{font-size:20px;margin:0 0 4px;letter-spacing:-.01em}
h3{font-size:14px;margin:16px 0 4px;font-weight:600}
p{margin:4px 0 12px;max-width:76ch}
.soft{color:var(--soft)}
section{background:var(--card);border:1px solid var(--line);border-radius:14px;padding:22px 24px;margin:18px 0}
.tiles{display:grid;grid-template-columns:repeat(auto-fit,minmax(200px,1fr));gap:14px;margin:22px 0}
.tile{background:var(--card);border:1px solid var(--line);border-radius:14px;padding:14px 18px}
.tile b{display:block;font-size:26px;letter-spacing:-.02em}
.tile span{color:var(--soft);font-size:14px}
.ok{color:var(--ok)}
.bad{color:var(--bad)}
svg{display:block;width:100%;height:auto}
svg.wave{height:96px}
svg.heat{height:120px;border-radius:8px}
.cells{display:flex;flex-wrap:wrap;gap:5px;margin:6px 0 12px}
.cells b{min-width:44px;padding:5px 0;text-align:center;border:1px solid var(--line);border-radius:8px;font-weight:500}
.cells.y b{border-color:var(--c1);color:var(--c1)}
.turns b{flex:1;min-width:104px}
.turns span{display:block;color:var(--soft);font-size:12px;font-weight:400}
.row{display:flex;align-items:center;gap:14px;justify-content:space-between;flex-wrap:wrap}
audio{height:34px}
.scroll{overflow-x:auto}
table{border-collapse:collapse;width:100%;font-size:14px}
th{text-align:left;color:var(--soft);font-weight:500}
th,td{padding:6px 14px 6px 0;border-bottom:1px solid var(--line);white-space:nowrap}
td.n,th.n{text-align:right}
code{font:13px ui-monospace,Menlo,Consolas,monospace}
.grid{stroke:var(--line);stroke-width:1}
.axis{stroke:var(--soft);stroke-width:1}
.level{stroke:var(--soft);stroke-width:1.2;stroke-dasharray:6 5}
.curve{fill:none;stroke-width:2.2;stroke-linejoin:round;stroke-linecap:round}
.c1{stroke:var(--c1)}
.c2{stroke:var(--c2)}
.c3{stroke:var(--c3)}
.c4{stroke:var(--soft);stroke-width:1.4;stroke-dasharray:4 4}
.fill{stroke:none}
.fill.c1{fill:var(--c1)}
.fill.c2{fill:var(--c2)}
.fill.c3{fill:var(--c3)}
.band{fill:var(--band)}
text{fill:var(--soft);font:13px system-ui,-apple-system,"Segoe UI",Roboto,sans-serif}
text.key,text.note{fill:var(--ink)}
.middle{text-anchor:middle}
.end{text-anchor:end}
)";

const char* kClasses[] = {"c1", "c2", "c3"};

std::string text(const char* pattern, double value) {
  char buffer[64];
  std::snprintf(buffer, sizeof buffer, pattern, value);
  return buffer;
}

std::string base64(std::span<const uint8_t> bytes) {
  static constexpr char kDigits[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
  std::string out;
  for (size_t i = 0; i < bytes.size(); i += 3) {
    const size_t left = std::min<size_t>(3, bytes.size() - i);
    uint32_t group = 0;
    for (size_t j = 0; j < 3; ++j) group = group << 8 | (j < left ? bytes[i + j] : 0);
    for (size_t j = 0; j < 4; ++j) out += j <= left ? kDigits[group >> (18 - 6 * j) & 63] : '=';
  }
  return out;
}

std::string tile(const std::string& value, const std::string& caption, const char* css_class = "") {
  return "<div class=\"tile\"><b class=\"" + std::string(css_class) + "\">" + escaped(value) + "</b><span>" + escaped(caption) +
         "</span></div>";
}

std::string tiles(const Report& r) {
  std::string out = "<div class=\"tiles\">";
  const auto filter = std::find_if(r.ran.begin(), r.ran.end(), [](const Ran& ran) { return ran.step == "band-pass"; });
  if (filter != r.ran.end())
    out += tile(text("%.0f\u00d7", filter->samples / filter->seconds / r.sample_rate),
                "real time: band-pass of " + std::to_string(r.band.taps) + " taps by conv1d, " + rate_text(*filter));
  if (r.training.done)
    out += tile(text("%+.1f %%", -100 * r.training.improvement),
                "squared error of the LLTM against persistence, on speech it never heard",
                r.training.beats_persistence ? "ok" : "bad");
  const auto passed =
      std::count_if(r.checks.begin(), r.checks.end(), [](const Agreement& a) { return a.ok; }) + (r.puzzle.ok ? 1 : 0);
  const auto total = static_cast<int64_t>(r.checks.size()) + 1;
  out += tile(std::to_string(passed) + " of " + std::to_string(total), "checks passed: agreement with float64 loops",
              passed == total ? "ok" : "bad");
  out += tile(duration(r.seconds), "for everything on this page");
  return out + "</div>";
}

std::string cells(const std::vector<float>& values, const char* css_class) {
  std::string out = "<div class=\"cells " + std::string(css_class) + "\">";
  for (const float value : values) out += "<b>" + text("%g", value) + "</b>";
  return out + "</div>";
}

std::string puzzle_section(const Puzzle& puzzle) {
  std::vector<float> signal(15);
  for (size_t i = 0; i < signal.size(); ++i) signal[i] = static_cast<float>(i);
  return "<section><h2>A filter in one line</h2><p class=\"soft\">The example of MAX's puzzle 17: <code>conv1d</code> of the "
         "numbers 0 to 14 "
         "with 0 1 2 3, as if three zeros followed.</p>" +
         cells(signal, "x") + cells(puzzle.got, "y") +
         (puzzle.ok ? "<p class=\"ok\">Exactly as expected.</p></section>" : "<p class=\"bad\">Not as expected.</p></section>");
}

std::string player(const Sound& sound, uint32_t sample_rate) {
  constexpr size_t kMostSamples = 200'000;  // a page of a few megabytes at most
  const auto excerpt =
      std::span(sound.samples).first(std::min(sound.samples.size(), std::min<size_t>(kMostSamples, 3 * size_t{sample_rate})));
  return "<audio controls=\"controls\" src=\"data:audio/wav;base64," + base64(encode_wav(excerpt, sample_rate)) + "\"></audio>";
}

std::string sounds_section(const Report& r) {
  std::string out = "<section><h2>What it sounds like</h2><p class=\"soft\">" + escaped(r.input) + ", " +
                    text("%.1f s", static_cast<double>(r.sounds[0].samples.size()) / r.sample_rate) + " at " +
                    std::to_string(r.sample_rate) + " Hz" + escaped(r.note.empty() ? "" : "; " + r.note) +
                    ". The players hold the beginning.</p>";
  for (size_t i = 0; i < r.sounds.size(); ++i)
    out += "<div class=\"row\"><h3>" + escaped(r.sounds[i].title) + "</h3>" + player(r.sounds[i], r.sample_rate) + "</div>" +
           waveform_svg(r.sounds[i].samples, kClasses[i % 3], "Waveform: " + r.sounds[i].title);
  return out + "</section>";
}

std::vector<std::pair<double, double>> points_of(const std::vector<SpectrumPoint>& spectrum) {
  std::vector<std::pair<double, double>> points;
  points.reserve(spectrum.size());
  for (const SpectrumPoint& p : spectrum) points.emplace_back(p.hertz, p.decibels);
  return points;
}

std::string spectra_section(const Report& r) {
  const double highest = r.sample_rate / 2.0;
  Axis x{50, highest, true, {}, "frequency, Hz"}, y{-110, 0, false, even_ticks(-110, 0, 6), "power, dB of full scale"};
  for (const double tick : {50.0, 100.0, 200.0, 500.0, 1000.0, 2000.0, 5000.0, 10000.0, 20000.0, 50000.0})
    if (tick <= highest) x.ticks.emplace_back(tick, text("%g", tick));
  Plot plot(x, y, "Power spectra before and after", 360);
  plot.shade(r.band.low, r.band.high, text("%.0f", r.band.low) + " to " + text("%.0f Hz", r.band.high));
  for (size_t i = 0; i < r.sounds.size(); ++i) plot.line(points_of(r.sounds[i].spectrum), kClasses[i % 3], r.sounds[i].title);
  plot.line(points_of(r.filter_response), "c4", "the filter");
  return "<section><h2>Before and after</h2><p class=\"soft\">The band-pass keeps what a telephone keeps, as sharply as " +
         std::to_string(r.band.taps) + " taps can; the soft clip, <code>tanh</code> of " + text("%g", r.gain) +
         " times the signal, is louder and puts overtones back beyond the band.</p>" + plot.svg() + "</section>";
}

std::string loss_plot(const Training& t) {
  std::vector<std::pair<double, double>> training, held_out;
  double low = 1, high = 1.02;
  for (size_t i = 0; i < t.curve.size(); ++i) {
    training.emplace_back(i + 1, t.curve[i].training), held_out.emplace_back(i + 1, t.curve[i].held_out);
    low = std::min({low, t.curve[i].training, t.curve[i].held_out}),
    high = std::max({high, t.curve[i].training, t.curve[i].held_out});
  }
  low = std::floor(low * 20 - 0.5) / 20, high = std::min(std::ceil(high * 20) / 20, 2.0);
  const double last = std::max(2.0, static_cast<double>(t.curve.size()));
  Plot plot({1, last, false, even_ticks(1, last, 10), "epoch"},
            {low, high, false, even_ticks(low, high, 6), "squared error over persistence's"}, "Loss curve");
  plot.level(1, "persistence");
  plot.line(training, "c1", "on what it is trained on");
  plot.line(held_out, "c2", "on what it never heard");
  return plot.svg();
}

std::string error_plot(const Training& t) {
  std::vector<std::pair<double, double>> model, persistence;
  double high = 1;
  for (size_t i = 0; i < t.frame_error.size(); ++i) {
    const double seconds = static_cast<double>(i + 1) * t.frame_seconds;
    model.emplace_back(seconds, t.frame_error[i]), persistence.emplace_back(seconds, t.frame_persistence[i]);
    high = std::max({high, t.frame_error[i], t.frame_persistence[i]});
  }
  const double end = static_cast<double>(t.frame_error.size()) * t.frame_seconds;
  Plot plot({0, end, false, even_ticks(0, end, 10), "time, s"},
            {0, high, false, even_ticks(0, high, 6), "error of the next frame, dB"}, "Prediction error frame by frame");
  plot.line(persistence, "c2", "persistence");
  plot.line(model, "c1", "LLTM");
  return plot.svg();
}

std::string training_section(const Training& t) {
  const std::string head = "<section><h2>An LLTM learns to listen</h2>";
  if (!t.done) return head + "<p>Not trained: " + escaped(t.why_not) + ".</p></section>";
  const auto [least, greatest] = std::minmax_element(t.real.begin(), t.real.end());
  std::string out = head + "<p class=\"soft\">" + std::to_string(t.states) + " states hear " + std::to_string(t.bands) +
                    " log-band energies every " + text("%.0f ms", 1000 * t.frame_seconds) +
                    " and predict the next ones. Trained on " + escaped(t.trained_on) + " by truncated back-propagation through " +
                    std::to_string(t.truncation) + " steps, " + std::to_string(t.epochs) + " epochs in " + duration(t.seconds) +
                    "; judged on " + escaped(t.held_out) + ": <b class=\"" + (t.beats_persistence ? "ok" : "bad") + "\">" +
                    text("%.1f %% ", 100 * std::abs(t.improvement)) + (t.beats_persistence ? "less" : "more") +
                    "</b> squared error than the guess that nothing changes.</p>";
  out += loss_plot(t) + "<h3>Frame by frame, on the recording held out</h3>" + error_plot(t);
  if (!t.turns.empty())
    out += "<h3>Each recording held out in turn: squared error against persistence</h3><div class=\"cells turns\">";
  for (const Turn& turn : t.turns)
    out += "<b class=\"" + std::string(turn.improvement > 0 ? "ok" : "bad") + "\">" + text("%+.1f %%", -100 * turn.improvement) +
           "<span>" + escaped(turn.held_out) + "</span></b>";
  if (!t.turns.empty()) out += "</div>";
  const auto bands = static_cast<int>(t.bands);
  out += "<h3>What came</h3>" + heat_map_svg(t.real, bands, *least, *greatest, "Log-band energies of the recording held out");
  out += "<h3>What the LLTM expected, one frame before</h3>" +
         heat_map_svg(t.predicted, bands, *least, *greatest, "Predicted log-band energies");
  return out + "<p class=\"soft\">Low bands below, high above; dark is " + text("%.0f dB", *least) + ", bright " +
         text("%.0f dB", *greatest) + ".</p></section>";
}

std::string ran_section(const Report& r) {
  std::string out =
      "<section><h2>What ran where</h2><p class=\"soft\">Backend <code>" + escaped(r.backend) + "</code> on " + escaped(r.device) +
      ", " + escaped(r.arch) +
      ".</p><div class=\"scroll\"><table><tr><th>step</th><th>operation</th><th>sizes</th><th>backend</th><th>kernel</th>"
      "<th class=\"n\">one run</th><th class=\"n\">rate</th><th class=\"n\">sound</th></tr>";
  for (const Ran& ran : r.ran)
    out += "<tr><td>" + escaped(ran.step) + "</td><td><code>" + escaped(ran.operation) + "</code></td><td>" + escaped(ran.shapes) +
           "</td><td>" + escaped(ran.backend) + "</td><td><code>" + escaped(ran.kernel) + "</code></td><td class=\"n\">" +
           duration(ran.seconds) + "</td><td class=\"n\">" + rate_text(ran) + "</td><td class=\"n\">" +
           real_time_text(ran, r.sample_rate) + "</td></tr>";
  return out + "</table></div></section>";
}

std::string checks_section(const Report& r) {
  std::string out =
      "<section><h2>Agreement with float64 loops</h2><div class=\"scroll\"><table><tr><th>result</th><th class=\"n\">elements</th>"
      "<th class=\"n\">largest error</th><th class=\"n\">relative error (L2)</th><th class=\"n\">limits</th><th></th></tr>";
  for (const Agreement& a : r.checks)
    out += "<tr><td><code>" + escaped(a.what) + "</code></td><td class=\"n\">" + std::to_string(a.elements) +
           "</td><td class=\"n\">" + text("%.1e", a.largest_error) + "</td><td class=\"n\">" + text("%.1e", a.relative_error) +
           "</td><td class=\"n\">" + text("%.0e + ", a.atol) + text("%.0e |ref|", a.rtol) + "</td><td>" +
           (a.ok ? "<span class=\"ok\">agrees</span>" : "<span class=\"bad\">differs</span>") + "</td></tr>";
  return out + "</table></div></section>";
}

}  // namespace

std::string to_html(const Report& r) {
  return "<!DOCTYPE html>\n<html lang=\"en\"><head><meta charset=\"utf-8\"/><meta name=\"viewport\" content=\"width=device-width, "
         "initial-scale=1\"/>"
         "<title>narrows demo</title><style>" +
         std::string(kStyle) +
         "</style></head><body><main>"
         "<h1>Speech, through the narrows</h1><p class=\"soft\">Real recordings through <code>conv1d</code>, "
         "<code>elementwise</code> and a trained "
         "<code>lltm</code>, by one C ABI. Narrows " +
         escaped(r.version) + ", backend " + escaped(r.backend) + " on " + escaped(r.device) + ".</p>" + tiles(r) +
         puzzle_section(r.puzzle) + sounds_section(r) + spectra_section(r) + training_section(r.training) + ran_section(r) +
         checks_section(r) + "<p class=\"soft\"><code>" + escaped(r.command) + "</code></p></main></body></html>\n";
}

}  // namespace narrows::tools
