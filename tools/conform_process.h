// SPDX-License-Identifier: Apache-2.0
// conform_process.h -- narrows-conform as a child: its arguments, its events line by line, and how it ended.
#pragma once

#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

namespace narrows::tools {

class ConformProcess {
 public:
  // Starts it with these arguments, to run the tests that the patterns match. Throws StatusError if it cannot be started.
  ConformProcess(std::vector<std::string> arguments, const std::vector<std::string>& patterns);
  ~ConformProcess();  // killed if it still runs, with all that it has started
  ConformProcess(const ConformProcess&) = delete;
  ConformProcess& operator=(const ConformProcess&) = delete;

  // The next event; nothing when it has ended, or when none came for so long: timed_out() then, and it has been killed. What the
  // plugin's own children do with the stream does not matter.
  std::optional<nlohmann::json> next(double timeout_seconds);
  bool timed_out() const { return timed_out_; }

  struct End {
    int exit_code = 0;  // -1: a signal
    std::string how;    // "ended by signal 11 (Segmentation fault)", "ended with exit code 1", "gave no sign of life for 3 s, ..."
    std::string printed;  // the last of what it wrote to stdout and stderr
  };
  // Waits for its end, as long as next() would, and kills what it has left behind.
  End wait(double timeout_seconds);

 private:
  bool wait_for(bool stream_too, double seconds) const;
  void kill_all() const;

  int pid_ = -1, pidfd_ = -1, events_ = -1, output_ = -1, patterns_ = -1;
  std::string buffer_;
  bool timed_out_ = false;
};

}  // namespace narrows::tools
