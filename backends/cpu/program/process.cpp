// SPDX-License-Identifier: Apache-2.0
// process.cpp -- see process.h.
#include "program/process.h"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <spawn.h>
#include <sys/auxv.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <cstdlib>
#include <optional>

#include "common/program_files.h"

extern char** environ;

namespace narrows::cpu {

using common::environment;
namespace {

constexpr size_t kMostOutput = 64 << 10;
constexpr int kLookMilliseconds = 20;  // how often a child is asked whether it has ended

// A set-user-ID program's user must not choose what a compiler starts: gcc reads GCC_EXEC_PREFIX and COMPILER_PATH.
char** environment_of_child() {
  static char path[] = "PATH=/usr/bin:/bin", locale[] = "LC_ALL=C";
  static char* clean[] = {path, locale, nullptr};
  return getauxval(AT_SECURE) != 0 ? clean : environ;
}

using Clock = std::chrono::steady_clock;

// A pipe's reading end is ours; the child gets the other one as its output.
class Child {
 public:
  explicit Child(const std::vector<std::string>& arguments) {
    if (pipe2(pipe_, O_CLOEXEC) != 0) {
      error_ = errno;
      return;
    }
    std::vector<char*> argv;
    argv.reserve(arguments.size() + 1);
    for (const std::string& argument : arguments) argv.push_back(const_cast<char*>(argument.c_str()));
    argv.push_back(nullptr);
    posix_spawn_file_actions_t files;
    posix_spawn_file_actions_init(&files);
    posix_spawn_file_actions_addopen(&files, 0, "/dev/null", O_RDONLY, 0);
    posix_spawn_file_actions_adddup2(&files, pipe_[1], 1);
    posix_spawn_file_actions_adddup2(&files, pipe_[1], 2);
    posix_spawnattr_t how;
    posix_spawnattr_init(&how);
    sigset_t none, all;
    sigemptyset(&none);
    sigfillset(&all);
    posix_spawnattr_setsigmask(&how, &none);
    posix_spawnattr_setsigdefault(&how, &all);
    posix_spawnattr_setpgroup(&how, 0);
    posix_spawnattr_setflags(&how, POSIX_SPAWN_SETPGROUP | POSIX_SPAWN_SETSIGMASK | POSIX_SPAWN_SETSIGDEF);
    error_ = posix_spawn(&pid_, argv[0], &files, &how, argv.data(), environment_of_child());
    posix_spawnattr_destroy(&how);
    posix_spawn_file_actions_destroy(&files);
    close(pipe_[1]);
    pipe_[1] = -1;
  }
  ~Child() {
    for (const int end : pipe_)
      if (end >= 0) close(end);
  }
  Child(const Child&) = delete;
  Child& operator=(const Child&) = delete;

  int error() const { return error_; }

  // Reads until all writers are gone, or the child has ended and the pipe is empty: what it left running may hold the pipe open.
  // False: the time is over.
  bool read_all(Clock::time_point until, std::string* output) {
    char buffer[4096];
    for (;;) {
      const bool ended = has_ended();  // asked first: all that it wrote is in the pipe by then
      if (Clock::now() >= until) return ended;
      pollfd wait{pipe_[0], POLLIN, 0};
      const int ready = poll(&wait, 1, ended ? 0 : kLookMilliseconds);
      if ((ready == 0 && ended) || (ready < 0 && errno != EINTR)) return true;
      if (ready <= 0) continue;
      const ssize_t got = read(pipe_[0], buffer, sizeof(buffer));
      if (got == 0 || (got < 0 && errno != EINTR)) return true;
      if (got > 0 && output->size() < kMostOutput) output->append(buffer, static_cast<size_t>(got));
    }
  }

  // Waits until it has ended. False: the time is over.
  bool wait_for(Clock::time_point until) {
    for (useconds_t pause = 200; !has_ended(); pause = std::min<useconds_t>(2 * pause, 10000)) {
      if (Clock::now() >= until) return false;
      usleep(pause);
    }
    return true;
  }

  int status() const { return *status_; }  // of one that has ended

  void kill_all() const {
    kill(-pid_, SIGKILL);
    int status = 0;
    while (waitpid(pid_, &status, 0) < 0 && errno == EINTR) {
    }
  }

 private:
  // The application may have reaped it for us (a handler of SIGCHLD); then it counts as having ended well, and its result tells.
  bool has_ended() {
    if (status_.has_value()) return true;
    int status = 0;
    const pid_t got = waitpid(pid_, &status, WNOHANG);
    if (got == pid_)
      status_ = status;
    else if (got < 0 && errno != EINTR)
      status_ = 0;
    return status_.has_value();
  }

  int pipe_[2] = {-1, -1};
  pid_t pid_ = 0;
  int error_ = 0;
  std::optional<int> status_;
};

}  // namespace

Outcome run_process(const std::vector<std::string>& arguments, double seconds) {
  Child child(arguments);
  Outcome out{Outcome::Kind::not_started, child.error(), {}};
  if (child.error() != 0) return out;
  const auto until = Clock::now() + std::chrono::duration_cast<Clock::duration>(std::chrono::duration<double>(seconds));
  if (!child.read_all(until, &out.output) || !child.wait_for(until)) {
    child.kill_all();
    out.kind = Outcome::Kind::timed_out;
  } else if (WIFSIGNALED(child.status())) {
    out.kind = Outcome::Kind::killed;
    out.number = WTERMSIG(child.status());
  } else {
    out.kind = Outcome::Kind::exited;
    out.number = WEXITSTATUS(child.status());
  }
  return out;
}

std::string find_program(const std::string& name) {
  if (name.empty()) return "";
  if (name.find('/') != std::string::npos) return access(name.c_str(), X_OK) == 0 ? name : "";
  std::string path = environment("PATH");
  if (path.empty()) path = "/usr/bin:/bin";
  for (size_t begin = 0; begin <= path.size();) {
    const size_t end = std::min(path.find(':', begin), path.size());
    const std::string file = path.substr(begin, end - begin) + "/" + name;
    if (end > begin && access(file.c_str(), X_OK) == 0) return file;
    begin = end + 1;
  }
  return "";
}

}  // namespace narrows::cpu
