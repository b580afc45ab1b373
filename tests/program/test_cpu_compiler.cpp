// test_cpu_compiler.cpp -- the C compiler that the cpu backend runs: absent, failing, hanging, killed; and the folder of what it
// made.
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <catch2/catch_test_macros.hpp>
#include <catch2/matchers/catch_matchers_string.hpp>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <optional>

#include "cpu_plugin.h"

namespace {

using Catch::Matchers::ContainsSubstring;
namespace fs = std::filesystem;

// A program that no other case has: each has its own constant.
std::string program(int number) {
  return "program 1 f(A: f32[N], C: out f32[N]):\n  for i in N:\n    block C(vi: S(N) = i):\n      C[vi] = A[vi] + f32(" +
         std::to_string(number) + ")\n";
}

Answer run(const std::string& text, const char* kernel = nullptr, int add = -1) {
  const Plugin plugin;
  Tensor a(DType::f32, {21}), c(DType::f32, {21});
  a.fill(1);
  Answer answer = Call{plugin, text, {&a}, {&c}, kernel}.run();
  for (int64_t i = 0; answer && add >= 0 && i < 21; ++i) {
    const auto want = static_cast<double>(static_cast<float>(a.get(i)) + static_cast<float>(add));
    if (c.get(i) != want) return {NW_FAILED, "wrong value", answer.kernel};
  }
  return answer;
}

class Environment {
 public:
  Environment(const char* name, const std::string& value) : name_(name) {
    if (const char* old = std::getenv(name)) before_ = old;
    setenv(name, value.c_str(), 1);
  }
  ~Environment() { before_.has_value() ? setenv(name_, before_->c_str(), 1) : unsetenv(name_); }
  Environment(const Environment&) = delete;
  Environment& operator=(const Environment&) = delete;

 private:
  const char* name_;
  std::optional<std::string> before_;
};

// A folder of the test's own, with the cache in it.
class Folder {
 public:
  Folder()
      : path_([] {
          std::string pattern = (fs::temp_directory_path() / "narrows-test-XXXXXX").string();
          return fs::path(mkdtemp(pattern.data()));
        }()),
        cache_("NARROWS_CACHE_DIR", (path_ / "cache").string()) {}
  ~Folder() {
    fs::permissions(path_, fs::perms::owner_all);
    fs::remove_all(path_);
  }
  fs::path operator/(const char* name) const { return path_ / name; }
  std::string script(const char* name, const std::string& body) const {
    std::ofstream(path_ / name) << "#!/bin/sh\n" << body << "\n";
    fs::permissions(path_ / name, fs::perms::owner_all);
    return (path_ / name).string();
  }
  std::vector<fs::path> objects() const {
    std::vector<fs::path> out;
    if (fs::exists(path_ / "cache" / "cpu"))
      for (const auto& entry : fs::directory_iterator(path_ / "cache" / "cpu")) out.push_back(entry.path());
    return out;
  }

 private:
  fs::path path_;
  Environment cache_;
};

}  // namespace

TEST_CASE("without a compiler the interpreter runs, and 'compiled' says what is missing") {
  const Folder folder;
  const Environment path("PATH", (folder / "nothing").string()), compiler("CC", "");
  const Answer chosen = run(program(1), nullptr, 1);
  CHECK(chosen);
  CHECK(chosen.kernel == "interpreter");
  const Answer forced = run(program(1), "compiled");
  CHECK(forced.status == NW_UNAVAILABLE);
  CHECK_THAT(forced.message, ContainsSubstring("no C compiler") && ContainsSubstring("clang"));
  const Answer unknown = run(program(1), "fast");
  CHECK(unknown.status == NW_UNSUPPORTED);
  CHECK_THAT(unknown.message, ContainsSubstring("compiled, interpreter"));
}

TEST_CASE("a compiler that fails, hangs or is killed is an error that says so") {
  const Folder folder;
  {
    const Environment compiler("CC", folder.script("fails", "echo 'no room for zebras' >&2; exit 3"));
    const Answer answer = run(program(2));
    CHECK(answer.status == NW_FAILED);
    CHECK_THAT(answer.message, ContainsSubstring("status 3") && ContainsSubstring("no room for zebras") && ContainsSubstring(".c"));
  }
  {
    const Environment compiler("CC", folder.script("hangs", "sleep 1000 & echo $! > " + (folder / "pid").string() + "; wait")),
        limit("NARROWS_COMPILE_SECONDS", "0.3");
    const Answer answer = run(program(3));
    CHECK(answer.status == NW_FAILED);
    CHECK_THAT(answer.message, ContainsSubstring("0.3 seconds"));
    int pid = 0;
    std::ifstream(folder / "pid") >> pid;
    REQUIRE(pid > 0);
    for (int i = 0; i < 100 && kill(pid, 0) == 0; ++i) {  // a zombie until whoever adopted it looks
      std::ifstream state("/proc/" + std::to_string(pid) + "/stat");
      std::string number, name, letter;
      state >> number >> name >> letter;
      if (letter == "Z") break;
      usleep(10000);
    }
    std::ifstream state("/proc/" + std::to_string(pid) + "/stat");
    std::string number, name, letter;
    state >> number >> name >> letter;
    CHECK((letter.empty() || letter == "Z"));
  }
  {
    const Environment compiler("CC", folder.script("dies", "kill -9 $$"));
    const Answer answer = run(program(4));
    CHECK(answer.status == NW_FAILED);
    CHECK_THAT(answer.message, ContainsSubstring("signal 9"));
  }
  {
    const Environment compiler("CC", folder.script("lies", "exit 0"));
    const Answer answer = run(program(5));
    CHECK(answer.status == NW_FAILED);
    CHECK_THAT(answer.message, ContainsSubstring("cannot be loaded"));
  }
}

TEST_CASE("what was compiled is kept, for this user alone, and used again") {
  const Folder folder;
  REQUIRE(run(program(6), "compiled", 6));
  REQUIRE(folder.objects().size() == 1);
  struct stat info{};
  REQUIRE(stat((folder / "cache/cpu").c_str(), &info) == 0);
  CHECK((info.st_mode & 0777) == 0700);
  const auto when = fs::last_write_time(folder.objects()[0]);
  REQUIRE(run(program(6), "compiled", 6));
  CHECK(fs::last_write_time(folder.objects()[0]) == when);
}

TEST_CASE("an object that is cut short or changed is built again") {
  const Folder folder;
  REQUIRE(run(program(7), "compiled", 7));
  const fs::path object = folder.objects().at(0);
  const auto size = fs::file_size(object);
  for (const auto left : {size / 2, uintmax_t{0}, uintmax_t{40}}) {
    fs::resize_file(object, left);
    CHECK(run(program(7), "compiled", 7));
    CHECK(fs::file_size(object) == size);
  }
  std::fstream file(object, std::ios::in | std::ios::out | std::ios::binary);
  file.seekp(static_cast<std::streamoff>(size / 2));
  file << "zebra";
  file.close();
  CHECK(run(program(7), "compiled", 7));
}

TEST_CASE("a folder that cannot be used is not") {
  const Folder folder;
  std::ofstream(folder / "file") << "no folder";
  const Environment cache("NARROWS_CACHE_DIR", (folder / "file").string());
  CHECK(run(program(8), "compiled", 8));
  fs::create_directories(folder / "open/cpu");
  fs::permissions(folder / "open/cpu", fs::perms::all);
  const Environment open("NARROWS_CACHE_DIR", (folder / "open").string());
  CHECK(run(program(8), "compiled", 8));
  CHECK(fs::is_empty(folder / "open/cpu"));
}

TEST_CASE("threads and processes build one program at once") {
  const Folder folder;
  std::vector<pid_t> children;
  for (int i = 0; i < 2; ++i) {
    const pid_t child = fork();
    if (child == 0) _exit(run(program(9), "compiled", 9) ? 0 : 1);
    children.push_back(child);
  }
  const Plugin plugin;
  std::vector<std::thread> threads;
  std::vector<int> good(3);
  for (size_t i = 0; i < good.size(); ++i)
    threads.emplace_back([&, i] {
      Tensor a(DType::f32, {21}), c(DType::f32, {21});
      a.fill(1);
      good[i] = Call{plugin, program(9), {&a}, {&c}, "compiled"}.run() && std::fabs(c.get(3) - a.get(3) - 9) < 1e-5 ? 1 : 0;
    });
  for (std::thread& thread : threads) thread.join();
  for (const int one : good) CHECK(one == 1);
  for (const pid_t child : children) {
    int status = 1;
    REQUIRE(waitpid(child, &status, 0) == child);
    CHECK(status == 0);
  }
  CHECK(folder.objects().size() == 1);
}
