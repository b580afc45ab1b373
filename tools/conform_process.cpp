// SPDX-License-Identifier: Apache-2.0
// conform_process.cpp -- see conform_process.h.
#include "conform_process.h"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <spawn.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <filesystem>

#include "engine.h"

extern char** environ;

namespace narrows::tools {
namespace {

constexpr int kEventsFd = 3;  // in the child
constexpr int kFirstFreeFd = 10;
constexpr size_t kPrintedKept = 4000;

// Beside this program, as built; or where the package has it.
std::string suite_path() {
  const std::filesystem::path here = std::filesystem::read_symlink("/proc/self/exe").parent_path();
  const std::filesystem::path places[] = {here / "narrows-conform", here / NARROWS_BIN_TO_LIBEXEC / "narrows" / "narrows-conform"};
  for (const auto& place : places)
    if (access(place.c_str(), X_OK) == 0) return place;
  throw StatusError(NW_UNAVAILABLE, "the conformance suite is not installed: there is no " + places[0].string() + " and no " +
                                        places[1].lexically_normal().string() + " (cmake -DNARROWS_BUILD_CONFORM=ON builds it)");
}

double now() { return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count(); }

// An unnamed file that a child inherits under its number, out of the way of those that it is given.
int inherited_file(const std::string& text) {
  const int made = memfd_create("narrows-conform", MFD_CLOEXEC);
  const int fd = made < 0 ? -1 : fcntl(made, F_DUPFD, kFirstFreeFd);
  close(made);
  if (fd < 0 || write(fd, text.data(), text.size()) != static_cast<ssize_t>(text.size()))
    throw StatusError(NW_FAILED, std::string("a file in memory cannot be written: ") + std::strerror(errno));
  lseek(fd, 0, SEEK_SET);
  return fd;
}

}  // namespace

ConformProcess::ConformProcess(std::vector<std::string> arguments, const std::vector<std::string>& patterns) {
  const std::string path = suite_path();
  std::string lines;
  for (const std::string& pattern : patterns) lines += pattern + "\n";
  patterns_ = inherited_file(lines);
  arguments.insert(arguments.begin(), {path, "--reporter", "events::out=/dev/fd/" + std::to_string(kEventsFd), "--input-file",
                                       "/dev/fd/" + std::to_string(patterns_)});
  std::vector<char*> argv;
  argv.reserve(arguments.size() + 1);
  for (std::string& word : arguments) argv.push_back(word.data());
  argv.push_back(nullptr);
  int ends[2];
  if (pipe2(ends, O_CLOEXEC) != 0) throw StatusError(NW_FAILED, std::string("pipe: ") + std::strerror(errno));
  events_ = ends[0];
  output_ = memfd_create("narrows-conform", MFD_CLOEXEC);
  posix_spawn_file_actions_t actions;
  posix_spawn_file_actions_init(&actions);
  posix_spawn_file_actions_adddup2(&actions, output_, STDOUT_FILENO);
  posix_spawn_file_actions_adddup2(&actions, output_, STDERR_FILENO);
  posix_spawn_file_actions_adddup2(&actions, ends[1], kEventsFd);
  posix_spawnattr_t attributes;
  posix_spawnattr_init(&attributes);
  posix_spawnattr_setflags(&attributes, POSIX_SPAWN_SETPGROUP);  // a group of its own, so that what it starts can be ended with it
  const int failed = posix_spawn(&pid_, path.c_str(), &actions, &attributes, argv.data(), environ);
  posix_spawnattr_destroy(&attributes);
  posix_spawn_file_actions_destroy(&actions);
  close(ends[1]);
  if (failed != 0) throw StatusError(NW_FAILED, path + ": " + std::strerror(failed));
  pidfd_ = static_cast<int>(syscall(SYS_pidfd_open, pid_, 0));
  if (pidfd_ < 0) throw StatusError(NW_FAILED, std::string("pidfd_open, which Linux has from 5.3 on: ") + std::strerror(errno));
  fcntl(events_, F_SETFL, O_NONBLOCK);
}

ConformProcess::~ConformProcess() {
  if (pid_ > 0) {
    kill_all();
    waitpid(pid_, nullptr, 0);
  }
  for (const int fd : {events_, output_, patterns_, pidfd_})
    if (fd >= 0) close(fd);
}

void ConformProcess::kill_all() const {
  kill(-pid_, SIGKILL);
  kill(pid_, SIGKILL);
}

// Until the process has ended, or the stream has something. False: neither within that time.
bool ConformProcess::wait_for(bool stream_too, double seconds) const {
  const double until = now() + seconds;
  pollfd ends[] = {{pidfd_, POLLIN, 0}, {events_, POLLIN, 0}};
  for (;;) {
    const int ready = poll(ends, stream_too ? 2 : 1, static_cast<int>(std::clamp((until - now()) * 1000 + 1, 0.0, 1e9)));
    if (ready > 0) return true;
    if (ready == 0 && now() >= until) return false;
  }
}

std::optional<nlohmann::json> ConformProcess::next(double timeout_seconds) {
  const double until = now() + timeout_seconds;
  for (;;) {
    if (const size_t end = buffer_.find('\n'); end != std::string::npos) {
      auto event = nlohmann::json::parse(buffer_.substr(0, end), nullptr, false);
      buffer_.erase(0, end + 1);
      if (event.is_object() && event.contains("event")) return event;
      continue;  // a plugin wrote to our descriptor
    }
    const bool ended = wait_for(false, 0);  // asked before the last look at the stream
    char bytes[65536];
    const ssize_t got = read(events_, bytes, sizeof bytes);
    if (got > 0) {
      buffer_.append(bytes, static_cast<size_t>(got));
      continue;
    }
    if (got == 0 || ended) return std::nullopt;
    if (!wait_for(true, until - now())) {
      timed_out_ = true;
      kill_all();
      return std::nullopt;
    }
  }
}

ConformProcess::End ConformProcess::wait(double timeout_seconds) {
  if (!timed_out_ && !wait_for(false, timeout_seconds)) timed_out_ = true;
  kill_all();  // before it is reaped: the number of its group is not another's yet
  End end;
  int status = 0;
  waitpid(pid_, &status, 0);
  pid_ = -1;
  if (timed_out_) {
    end.exit_code = -1;
    end.how = "gave no sign of life for " + std::to_string(static_cast<int>(timeout_seconds)) + " s, and was ended";
  } else if (WIFSIGNALED(status)) {
    end.exit_code = -1;
    end.how = "ended by signal " + std::to_string(WTERMSIG(status)) + " (" + strsignal(WTERMSIG(status)) + ")";
  } else {
    end.exit_code = WEXITSTATUS(status);
    end.how = "ended with exit code " + std::to_string(end.exit_code);
  }
  const off_t size = std::max<off_t>(lseek(output_, 0, SEEK_END), 0);
  const size_t kept = std::min<size_t>(kPrintedKept, static_cast<size_t>(size));
  end.printed.resize(kept);
  const ssize_t got = pread(output_, end.printed.data(), kept, size - static_cast<off_t>(kept));
  end.printed.resize(static_cast<size_t>(std::max<ssize_t>(got, 0)));
  while (!end.printed.empty() && end.printed.back() == '\n') end.printed.pop_back();
  return end;
}

}  // namespace narrows::tools
