// conform_process.h -- narrows-conform as a child: its arguments, its events line by line, and how it ended.
#pragma once

#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

namespace narrows::tools {

class ConformProcess {
 public:
  // Starts it with these arguments. Throws StatusError if it cannot be started.
  explicit ConformProcess(const std::vector<std::string>& arguments);
  ~ConformProcess();  // killed if it still runs
  ConformProcess(const ConformProcess&) = delete;
  ConformProcess& operator=(const ConformProcess&) = delete;

  // The next event; nothing at its end, or when none came for so long: timed_out() then, and it has been killed.
  std::optional<nlohmann::json> next(double timeout_seconds);
  bool timed_out() const { return timed_out_; }

  struct End {
    int exit_code = 0;    // -1: a signal
    std::string how;      // "ended by signal 11 (Segmentation fault)", "ended with exit code 1"
    std::string printed;  // the last of what it wrote to stdout and stderr
  };
  End wait();

 private:
  int pid_ = -1, events_ = -1, output_ = -1;
  std::string buffer_;
  bool timed_out_ = false;
};

}  // namespace narrows::tools
