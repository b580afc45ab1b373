// SPDX-License-Identifier: Apache-2.0
// terminal.h -- colours and progress bars, on a terminal only: what goes into a pipe or a file is plain text.
#pragma once

#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>

namespace narrows::tools {

inline bool colours_wanted() {
  const char* term = std::getenv("TERM");
  const char* no_color = std::getenv("NO_COLOR");  // no-color.org: set and not empty
  return isatty(STDOUT_FILENO) && (no_color == nullptr || *no_color == 0) && term != nullptr && std::strcmp(term, "dumb") != 0;
}

// Text for stdout in an ANSI colour; as it is where colours are not wanted.
inline std::string coloured(const char* code, const std::string& text) {
  static const bool wanted = colours_wanted();
  return wanted ? std::string("\033[") + code + "m" + text + "\033[0m" : text;
}
inline std::string bold(const std::string& text) { return coloured("1", text); }
inline std::string dim(const std::string& text) { return coloured("2", text); }
inline std::string green(const std::string& text) { return coloured("32", text); }
inline std::string red(const std::string& text) { return coloured("31", text); }
inline std::string yellow(const std::string& text) { return coloured("33", text); }

// A bar on stderr that redraws itself; nothing at all where stderr is not a terminal.
class Progress {
 public:
  Progress(std::string label, int total) : label_(std::move(label)), total_(std::max(total, 1)), shown_(isatty(STDERR_FILENO)) {}
  ~Progress() { clear(); }
  Progress(const Progress&) = delete;
  Progress& operator=(const Progress&) = delete;

  void update(int done, const std::string& note = "") {
    const int permille = static_cast<int>(1000LL * done / total_);
    if (!shown_ || (permille == permille_ && note == note_)) return;
    permille_ = permille;
    note_ = note;
    const int filled = permille * kWidth / 1000;
    std::string bar;
    for (int i = 0; i < kWidth; ++i) bar += i < filled ? "█" : "░";
    std::fprintf(stderr, "\r\033[K%s %s %3d %%  %s", label_.c_str(), bar.c_str(), permille / 10,
                 note.substr(0, kNoteWidth).c_str());
    std::fflush(stderr);
  }

  // Takes the bar away, for what is printed in its place; the next update brings it back.
  void clear() {
    if (shown_ && permille_ >= 0) std::fprintf(stderr, "\r\033[K");
    permille_ = -1;
  }

 private:
  static constexpr int kWidth = 28;
  static constexpr size_t kNoteWidth = 60;
  std::string label_;
  int total_;
  bool shown_;
  int permille_ = -1;
  std::string note_;
};

}  // namespace narrows::tools
