// conform_process.cpp -- see conform_process.h.
#include "conform_process.h"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <spawn.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <cstring>
#include <filesystem>

#include "engine.h"

extern char** environ;

namespace narrows::tools {
namespace {

constexpr int kEventsFd = 3;  // in the child
constexpr size_t kPrintedKept = 4000;

// Beside this program, as built; or where the package has it.
std::string suite_path() {
  const std::filesystem::path here = std::filesystem::read_symlink("/proc/self/exe").parent_path();
  const std::filesystem::path places[] = {here / "narrows-conform", here / NARROWS_BIN_TO_LIBEXEC / "narrows" / "narrows-conform"};
  for (const auto& place : places)
    if (access(place.c_str(), X_OK) == 0) return place;
  throw StatusError(NW_UNAVAILABLE, "the conformance suite is not installed: there is no " + places[0].string() + " and no " +
                                        places[1].lexically_normal().string() + " (cmake -DNARROWS_BUILD_TESTS=ON builds it)");
}

double now() { return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count(); }

}  // namespace

ConformProcess::ConformProcess(const std::vector<std::string>& arguments) {
  const std::string path = suite_path();
  std::vector<std::string> words{path, "--reporter", "events::out=/dev/fd/" + std::to_string(kEventsFd)};
  words.insert(words.end(), arguments.begin(), arguments.end());
  std::vector<char*> argv;
  argv.reserve(words.size() + 1);
  for (std::string& word : words) argv.push_back(word.data());
  argv.push_back(nullptr);
  int ends[2];
  if (pipe2(ends, O_CLOEXEC) != 0) throw StatusError(NW_FAILED, std::string("pipe: ") + std::strerror(errno));
  output_ = memfd_create("narrows-conform", MFD_CLOEXEC);
  posix_spawn_file_actions_t actions;
  posix_spawn_file_actions_init(&actions);
  posix_spawn_file_actions_adddup2(&actions, output_, STDOUT_FILENO);
  posix_spawn_file_actions_adddup2(&actions, output_, STDERR_FILENO);
  posix_spawn_file_actions_adddup2(&actions, ends[1], kEventsFd);
  const int failed = posix_spawn(&pid_, path.c_str(), &actions, nullptr, argv.data(), environ);
  posix_spawn_file_actions_destroy(&actions);
  close(ends[1]);
  events_ = ends[0];
  if (failed != 0) throw StatusError(NW_FAILED, path + ": " + std::strerror(failed));
}

ConformProcess::~ConformProcess() {
  if (pid_ > 0) {
    kill(pid_, SIGKILL);
    waitpid(pid_, nullptr, 0);
  }
  close(events_);
  close(output_);
}

std::optional<nlohmann::json> ConformProcess::next(double timeout_seconds) {
  const double until = now() + timeout_seconds;
  for (;;) {
    if (const size_t end = buffer_.find('\n'); end != std::string::npos) {
      auto event = nlohmann::json::parse(buffer_.substr(0, end), nullptr, false);
      buffer_.erase(0, end + 1);
      if (event.is_object()) return event;
      continue;  // a plugin wrote to our descriptor
    }
    pollfd wait{events_, POLLIN, 0};
    const double left = until - now();
    const int ready = left <= 0 ? 0 : poll(&wait, 1, static_cast<int>(std::min(left * 1000 + 1, 1e9)));
    if (ready < 0 && errno == EINTR) continue;
    if (ready == 0) {
      timed_out_ = true;
      kill(pid_, SIGKILL);
      return std::nullopt;
    }
    char bytes[65536];
    const ssize_t got = read(events_, bytes, sizeof bytes);
    if (got <= 0) return std::nullopt;
    buffer_.append(bytes, static_cast<size_t>(got));
  }
}

ConformProcess::End ConformProcess::wait() {
  End end;
  int status = 0;
  waitpid(pid_, &status, 0);
  pid_ = -1;
  if (WIFSIGNALED(status)) {
    end.exit_code = -1;
    end.how = "ended by signal " + std::to_string(WTERMSIG(status)) + " (" + strsignal(WTERMSIG(status)) + ")";
  } else {
    end.exit_code = WEXITSTATUS(status);
    end.how = "ended with exit code " + std::to_string(end.exit_code);
  }
  const off_t size = lseek(output_, 0, SEEK_END);
  const size_t kept = std::min<size_t>(kPrintedKept, static_cast<size_t>(std::max<off_t>(size, 0)));
  end.printed.resize(kept);
  const ssize_t got = pread(output_, end.printed.data(), kept, size - static_cast<off_t>(kept));
  end.printed.resize(static_cast<size_t>(std::max<ssize_t>(got, 0)));
  while (!end.printed.empty() && end.printed.back() == '\n') end.printed.pop_back();
  return end;
}

}  // namespace narrows::tools
