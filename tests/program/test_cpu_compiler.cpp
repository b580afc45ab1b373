// SPDX-License-Identifier: Apache-2.0
// test_cpu_compiler.cpp -- the C compiler that the cpu backend runs: absent, failing, hanging, killed; and the folder of what it
// made.
#include <signal.h>
#include <sys/auxv.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <catch2/catch_test_macros.hpp>
#include <catch2/matchers/catch_matchers_string.hpp>
#include <chrono>
#include <cstdlib>
#include <filesystem>
#include <fstream>

#include "cpu_plugin.h"
#include "folder.h"

namespace {

using Catch::Matchers::ContainsSubstring;

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
    CHECK_THAT(answer.message, !ContainsSubstring("cpu: ") && ContainsSubstring("status 3") &&
                                   ContainsSubstring("no room for zebras") && ContainsSubstring(".c"));
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
  REQUIRE(run(program(22), "compiled", 22));  // another source has an object of its own
  CHECK(folder.objects().size() == 2);
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

TEST_CASE("an object whose digest is another one's is built again") {
  const Folder folder;
  REQUIRE(run(program(23), "compiled", 23));
  const fs::path object = folder.objects().at(0);
  const auto last = [&](char write) {  // the last byte of the digest behind the object; 0 writes nothing
    std::fstream file(object, std::ios::in | std::ios::out | std::ios::binary);
    file.seekg(-1, std::ios::end);
    const auto at = file.tellg();
    const int before = file.get();
    file.seekp(at);
    if (write != 0) file.put(write);
    return before;
  };
  const int right = last('x');
  CHECK(run(program(23), "compiled", 23));
  CHECK(last(0) == right);
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

TEST_CASE("the cache is in XDG_CACHE_HOME, or else in the home") {
  const Folder folder;
  const Environment none("NARROWS_CACHE_DIR", ""), home("HOME", (folder / "home").string());
  for (const char* xdg : {"", "xdg"}) {
    const Environment cache("XDG_CACHE_HOME", *xdg == '\0' ? "" : (folder / xdg).string());
    REQUIRE(run(program(24), "compiled", 24));
    CHECK(fs::exists(folder / "home/.cache/narrows/cpu"));
    CHECK(fs::exists(folder / "xdg/narrows/cpu") == (*xdg != '\0'));
  }
}

TEST_CASE("where no folder keeps what was compiled, the plugin does") {
  const Folder folder;
  std::ofstream(folder / "file") << "no folder";
  const Environment cache("NARROWS_CACHE_DIR", (folder / "file").string()),
      compiler("CC", folder.script("counts", "echo >> " + (folder / "runs").string() + "; exec gcc \"$@\""));
  const Plugin plugin;
  for (int i = 0; i < 2; ++i) {
    Tensor a(DType::f32, {21}), c(DType::f32, {21});
    const Answer answer = Call{plugin, program(25), {&a}, {&c}, "compiled"}.run();
    INFO(answer.message);
    REQUIRE(answer);
    CHECK(fs::file_size(folder / "runs") == 1);
  }
}

TEST_CASE("asking starts no compiler, and another size or param compiles nothing anew") {
  const Folder folder;
  const Environment compiler("CC", folder.script("counts", "echo >> " + (folder / "runs").string() + "; exec gcc \"$@\""));
  const std::string text =
      "program 1 f(A: f32[M, N], C: out f32[M, N], s: param f32 = 27):\n  for i in M:\n    for j in N:\n"
      "      block C(vi: S(M) = i, vj: S(N) = j):\n        C[vi, vj] = A[vi, vj] + s\n";
  const Plugin plugin;
  const auto asked = [&](int64_t m, int64_t n) {
    Tensor a(DType::f32, {m, n}), c(DType::f32, {m, n});
    return Call{plugin, text, {&a}, {&c}, "compiled", {{27, 0, true}}}.ask();
  };
  const auto add = [&](int64_t m, int64_t n, double s) {
    Tensor a(DType::f32, {m, n}), c(DType::f32, {m, n});
    a.fill(1);
    const Answer answer = Call{plugin, text, {&a}, {&c}, "compiled", {{s, 0, true}}}.run();
    INFO(m << " " << n << " " << s << ": " << answer.message);
    REQUIRE(answer);
    for (int64_t i = 0; i < c.elements(); ++i)
      if (c.get(i) != static_cast<double>(static_cast<float>(a.get(i)) + static_cast<float>(s))) FAIL("element " << i);
  };
  CHECK(asked(3, 7).kernel == "compiled");
  CHECK(!fs::exists(folder / "runs"));
  add(3, 7, 27);
  for (const auto& [m, n] : {std::pair<int64_t, int64_t>{3, 8}, {64, 300}, {0, 5}, {2, 2}}) {
    add(m, n, 27);
    add(m, n, -0.5);
    CHECK(asked(m, n));
  }
  CHECK(fs::file_size(folder / "runs") == 1);
}

// A host may ignore signals, as Python does SIGPIPE, and block some in the calling thread.
TEST_CASE("a compiler begins with no signal ignored or blocked") {
  const Folder folder;
  // By the shell itself: it blocks signals while it starts a program.
  const Environment compiler("CC",
                             folder.script("looks",
                                           "while read -r name set; do case $name in SigBlk:|SigIgn:) echo $name $set;; esac; done "
                                           "< /proc/self/status > " +
                                               (folder / "signals").string() + "; exec gcc \"$@\""));
  const std::array signals = {SIGHUP, SIGINT, SIGQUIT, SIGPIPE, SIGALRM, SIGTERM, SIGUSR1, SIGUSR2};
  std::array<sighandler_t, signals.size()> before{};
  sigset_t some, blocked;
  sigemptyset(&some);
  sigaddset(&some, SIGWINCH);
  pthread_sigmask(SIG_BLOCK, &some, &blocked);
  std::transform(signals.begin(), signals.end(), before.begin(), [](int number) { return signal(number, SIG_IGN); });
  const Answer answer = run(program(26), "compiled", 26);
  for (size_t i = 0; i < signals.size(); ++i) signal(signals[i], before[i]);
  pthread_sigmask(SIG_SETMASK, &blocked, nullptr);
  INFO(answer.message);
  REQUIRE(answer);
  std::ifstream file(folder / "signals");
  constexpr uint64_t kOfC = uint64_t{3} << 31;  // 32 and 33 are the C library's own
  for (const char* expected : {"SigBlk:", "SigIgn:"}) {
    std::string name;
    uint64_t set = 1;
    file >> name >> std::hex >> set;
    CHECK(name == expected);
    CHECK((set & ~kOfC) == 0);
  }
}

TEST_CASE("another user's folder is not used") {
  if (geteuid() != 0) SKIP("only root can make a folder another user's");
  const Folder folder;
  fs::create_directories(folder / "cache/cpu");
  REQUIRE(chown((folder / "cache/cpu").c_str(), 65534, 65534) == 0);
  CHECK(run(program(17), "compiled", 17));
  CHECK(folder.objects().empty());
  CHECK(fs::is_empty(folder / "tmp"));
}

TEST_CASE("a disk that is full is passed over") {
  const Folder folder;
  fs::create_directories(folder / "cache/cpu");
  const fs::path disk = folder / "cache/cpu";
  if (mount("none", disk.c_str(), "tmpfs", 0, "size=4k,mode=0700") != 0) SKIP("only root can mount a small disk");
  std::ofstream(disk / "full") << std::string(4096, ' ');
  const Answer answer = run(program(18), "compiled", 18);
  const size_t files = folder.objects().size();
  REQUIRE(umount(disk.c_str()) == 0);
  INFO(answer.message);
  CHECK(answer);
  CHECK(files == 1);
  CHECK(fs::is_empty(folder / "tmp"));
}

TEST_CASE("an object belongs to one compiler and one set of flags") {
  const Folder folder;
  const Environment compiler("CC", folder.script("compiler", "exec gcc \"$@\""));
  REQUIRE(run(program(19), "compiled", 19));
  CHECK(folder.objects().size() == 1);
  folder.script("compiler", "# another one\nexec gcc \"$@\"");
  REQUIRE(run(program(19), "compiled", 19));
  CHECK(folder.objects().size() == 2);
  const Environment flagged("CC", (folder / "compiler").string() + " -DNOTHING");
  REQUIRE(run(program(19), "compiled", 19));
  CHECK(folder.objects().size() == 3);
}

#ifdef __x86_64__
// Both have vectors of 16 bytes and no fused multiply-add, so that their sources are one.
TEST_CASE("an object of a lesser instruction set is not one of another") {
  const Folder folder;
  for (const char* target : {"sse4", "baseline"}) {
    const Environment lesser("NARROWS_CPU_TARGET", target);
    if (nw_error error{}; !Plugin::is_usable(&error)) SKIP(error.message);
    const Answer answer = run(program(20), "compiled", 20);
    INFO(target << " " << answer.message);
    REQUIRE(answer);
  }
  CHECK(folder.objects().size() == 2);
}
#endif

// A sanitizer's own locks may stay locked in such a child.
#if !defined(__SANITIZE_THREAD__) && !defined(__SANITIZE_ADDRESS__)
TEST_CASE("a child of a process that builds can build") {
  const Folder folder;
  const Plugin plugin;
  std::atomic<bool> ends = false;
  std::thread builder([&] {
    for (int number = 300; !ends; ++number) {
      Tensor a(DType::f32, {21}), c(DType::f32, {21});
      Call{plugin, program(number), {&a}, {&c}, number % 8 == 0 ? "compiled" : "interpreter"}.run();
    }
  });
  int good = 0;
  for (int i = 0; i < 12; ++i) {
    const pid_t child = fork();
    if (child == 0) {
      alarm(60);  // a lock that stays locked ends it
      Tensor a(DType::f32, {21}), c(DType::f32, {21});
      const char* const kernel = i % 4 == 0 ? "compiled" : "interpreter";
      _exit(Call{plugin, program(21), {&a}, {&c}, kernel}.run() && std::fabs(c.get(3) - a.get(3) - 21) < 1e-5 ? 0 : 1);
    }
    int status = 1;
    REQUIRE(waitpid(child, &status, 0) == child);
    good += status == 0 ? 1 : 0;
  }
  ends = true;
  builder.join();
  CHECK(good == 12);
}
#endif

// 2 to the 63 iterations, and 1,000 stores of 1,023 sums: neither is written out.
TEST_CASE("unrolled loops make no text without an end") {
  const auto source_of = [](const std::string& loops, int depth, const std::string& value) {
    const Folder folder;
    const Environment compiler("CC", folder.script("fails", "exit 3"));
    Tensor a(DType::f32, {21}), c(DType::f32, {21});
    const std::string indent(static_cast<size_t>(2 * depth + 2), ' ');
    const std::string text = "program 1 f(A: f32[N], C: out f32[N]):\n" + loops + indent + "block C(v: C(N) = 0):\n" + indent +
                             "  C[v] = " + value + "\n";
    const Plugin plugin;
    const Answer answer = Call{plugin, text, {&a}, {&c}, "compiled"}.run();
    INFO(answer.message);
    CHECK(answer.status == NW_FAILED);
    return folder.source();
  };
  std::string nest, sum = "A[v]";
  for (int i = 0; i < 4; ++i)
    nest += std::string(static_cast<size_t>(2 * i + 2), ' ') + "for i" + std::to_string(i) + (i == 0 ? " in 32768" : " in 65536") +
            " unroll:\n";
  for (int i = 0; i < 10; ++i) sum = "(" + sum + " + " + sum + ")";
  for (const std::string& source : {source_of(nest, 4, "A[v]"), source_of("  for i in 1000 unroll:\n", 1, sum)}) {
    CHECK_THAT(source, ContainsSubstring("narrows_program"));
    CHECK(source.size() < size_t{1} << 20);
  }
}

TEST_CASE("a tile is as much longer in memory as it is padded") {
  const auto source_of = [](const std::string& padding) {
    const Folder folder;
    const Environment compiler("CC", folder.script("fails", "exit 3"));
    const std::string text =
        "program 1 f(A: f32[64, 128], C: out f32[128, 64]):\n  alloc T: f32[64, 128]" + padding +
        "\n  for i in 4:\n    for j in 4:\n      for a in 16:\n        for b in 32:\n"
        "          block T(vi: S(64) = i * 16 + a, vj: S(128) = j * 32 + b):\n            T[vi, vj] = A[vi, vj]\n"
        "      for c in 32:\n        for d in 16:\n"
        "          block C(vj: S(128) = j * 32 + c, vi: S(64) = i * 16 + d):\n            C[vj, vi] = T[vi, vj]\n";
    Tensor a(DType::f32, {64, 128}), c(DType::f32, {128, 64});
    const Plugin plugin;
    CHECK(Call{plugin, text, {&a}, {&c}, "compiled"}.run().status == NW_FAILED);
    return folder.source();
  };
  CHECK_THAT(source_of(""), ContainsSubstring("[512]"));
  CHECK_THAT(source_of(" pad [0, 8]"), ContainsSubstring("[640]") && !ContainsSubstring("[512]"));
  CHECK_THAT(source_of(" shared pad [1, 8]"), ContainsSubstring("[680]"));
}

TEST_CASE("no name of a program reaches what is compiled") {
  const Folder folder;
  const Environment compiler("CC", folder.script("fails", "exit 3"));
  const std::string text =
      "program 1 zebra_main(zebra_a: f32[zebra_n], zebra_s: param f32 = 2, zebra_c: out f32[zebra_n]):\n"
      "  alloc zebra_t: f32[zebra_n]\n  for zebra_i in zebra_n {\"zebra_key\": \"zebra\\nsystem(1);\"}:\n"
      "    block zebra_t(zebra_v: S(zebra_n) = zebra_i):\n      zebra_t[zebra_v] = exp(zebra_a[zebra_v])\n"
      "  for zebra_j in zebra_n:\n    block zebra_c(zebra_w: S(zebra_n) = zebra_j):\n"
      "      zebra_c[zebra_w] = zebra_t[zebra_w] * zebra_s\n";
  Tensor a(DType::f32, {21}), c(DType::f32, {21});
  const Plugin plugin;
  const Answer answer = Call{plugin, text, {&a}, {&c}, "compiled", {{2, 0, true}}}.run();
  INFO(answer.message);
  REQUIRE(answer.status == NW_FAILED);
  CHECK_THAT(folder.source(), ContainsSubstring("narrows_program") && !ContainsSubstring("zebra") && !ContainsSubstring("system"));
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

TEST_CASE("what a compiler leaves running does not hold its call up") {
  const Folder folder;
  const Environment compiler("CC", folder.script("leaves", "setsid sleep 20 & exec gcc \"$@\"")),
      limit("NARROWS_COMPILE_SECONDS", "5");
  const auto begin = std::chrono::steady_clock::now();
  const Answer answer = run(program(10), "compiled", 10);
  INFO(answer.message);
  CHECK(answer);
  CHECK(std::chrono::steady_clock::now() - begin < std::chrono::seconds(5));
}

TEST_CASE("calls that fail leave one source behind") {
  const Folder folder;
  const Environment compiler("CC", folder.script("fails", "exit 3"));
  std::string first;
  for (int i = 0; i < 3; ++i) {
    const Answer answer = run(program(11), "compiled");
    CHECK(answer.status == NW_FAILED);
    if (i == 0) first = answer.message;
    CHECK(answer.message == first);
  }
  std::vector<fs::path> files;
  for (const char* place : {"tmp", "cache"})
    for (const auto& entry : fs::recursive_directory_iterator(folder / place))
      if (!entry.is_directory()) files.push_back(entry.path());
  REQUIRE(files.size() == 1);
  CHECK(files[0].extension() == ".c");
  CHECK_THAT(first, ContainsSubstring(files[0].string()));
  struct stat info{};
  REQUIRE(stat(files[0].parent_path().c_str(), &info) == 0);
  CHECK((info.st_mode & 0777) == 0700);
  CHECK(std::distance(fs::directory_iterator(folder / "tmp"), fs::directory_iterator()) == 1);
}

TEST_CASE("a cache where nothing can be made or loaded is passed over") {
  const Folder folder;
  const std::string find = "for word; do case $word in */cache/cpu/*.so) ";
  const std::string rest = ";; esac; done; exec gcc \"$@\"";
  {
    const Environment compiler("CC", folder.script("full", find + "exit 1" + rest));
    const Answer answer = run(program(12), "compiled", 12);
    INFO(answer.message);
    CHECK(answer);
  }
  {
    const Environment compiler("CC", folder.script("noexec", find + "echo no object > $word; exit 0" + rest));
    const Answer answer = run(program(13), "compiled", 13);
    INFO(answer.message);
    CHECK(answer);
  }
  CHECK(folder.objects().empty());
  CHECK(fs::is_empty(folder / "tmp"));
}

// 130 programs in four layouts: more than are kept without a plan. The compiler copies an object that was made before.
TEST_CASE("any number of programs can be planned one after the other") {
  const Folder folder;
  REQUIRE(run(program(14), "compiled", 14));
  const fs::path made = folder / "made.so";
  fs::rename(folder.objects().at(0), made);
  const Environment compiler(
      "CC", folder.script("copies", "while [ \"$1\" != -o ]; do shift; done; exec cp " + made.string() + " \"$2\""));
  const Plugin plugin;
  for (int number = 100; number < 230; ++number) {
    for (const int64_t step : {1, 2}) {
      for (const int64_t out_step : {1, 2}) {
        Tensor a(DType::f32, {21}, step), c(DType::f32, {21}, out_step);
        const Answer answer = Call{plugin, program(number), {&a}, {&c}, "compiled", {}, -1, 0}.run();
        INFO(number << ": " << answer.message);
        REQUIRE(answer);
      }
    }
  }
}

// Run by the next case alone, as a set-user-ID program.
TEST_CASE("a set-user-ID program compiles", "[.secure]") {
  REQUIRE(getauxval(AT_SECURE) != 0);
  CHECK(run(program(15), "compiled", 15));
}

TEST_CASE("a set-user-ID program's user does not choose what the compiler starts") {
  if (geteuid() != 0) SKIP("only root can make a program another user's");
  for (fs::path part = PROGRAM_PLUGIN; part.has_relative_path(); part = part.parent_path())
    if ((fs::status(part).permissions() & fs::perms::others_read) == fs::perms::none) SKIP("other users cannot read " << part);
  struct statvfs system{};
  if (statvfs(fs::temp_directory_path().c_str(), &system) != 0 || (system.f_flag & ST_NOSUID) != 0) SKIP("a 'nosuid' file system");
  const Folder folder;
  const std::string marker = folder / "tmp/marker";
  const std::string tool = folder.script("as", "touch " + marker + "; exec /usr/bin/as \"$@\"");
  const fs::path copy = folder / "copy";
  fs::copy_file("/proc/self/exe", copy);
  for (const char* name : {".", "tmp", "as"}) fs::permissions(folder / name, fs::perms::all);
  REQUIRE(chown(copy.c_str(), 65534, 65534) == 0);
  REQUIRE(chmod(copy.c_str(), 04755) == 0);
  const Environment path("COMPILER_PATH", fs::path(tool).parent_path().string());
  REQUIRE(run(program(16), "compiled", 16));
  REQUIRE(fs::remove(marker));  // so the variable has a say elsewhere
  const pid_t child = fork();
  if (child == 0) {
    execl(copy.c_str(), copy.c_str(), "[secure]", nullptr);
    _exit(127);
  }
  int status = 1;
  REQUIRE(waitpid(child, &status, 0) == child);
  CHECK(status == 0);
  CHECK(!fs::exists(marker));
}
