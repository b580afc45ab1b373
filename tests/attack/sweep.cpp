// SPDX-License-Identifier: Apache-2.0
// sweep.cpp -- see sweep.h.
#include "sweep.h"

#include <dirent.h>
#include <dlfcn.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <utility>

namespace narrows::attack {

Report* report;
nw_runtime* rt;

constexpr long kMost = 20000;           // allocations of one operation
constexpr unsigned kColdSeconds = 120;  // of one attempt in a process of its own

static void say_where(const std::string& operation, Failing how, long n) {
  std::snprintf(report->where, sizeof report->where, "%s, allocation %ld %s", operation.c_str(), n,
                how == Failing::once ? "failing" : "and all after it failing");
}

void wrong(const char* what, const nw_error* error) {
  if (++report->failures > 20) return;
  std::fprintf(stderr, "  %s: %s%s%s\n", report->where, what, error != nullptr ? ": " : "", error != nullptr ? error->message : "");
}

static bool sane(const nw_error& error, int32_t status) {
  return error.status == status && error.argument == -1 && memchr(error.message, '\0', sizeof error.message) != nullptr &&
         (strstr(error.message, "memory") != nullptr || strstr(error.message, "Memory") != nullptr);
}

static void expect_success(const Operation& o, const char* which) {
  nw_error error{};
  o.before();
  if (o.run(&error) != NW_OK)
    wrong(which, &error);
  else if (!o.right())
    wrong("succeeded with a wrong result");
  else
    return o.undo();
}

Live alive() {
  dlerror(), dlerror();
  return live();
}

void expect_no_leak(const Live& before) {
  if (alive().blocks == before.blocks) return;
  wrong("leaves blocks behind");
  if (report->failures <= 20) print_live_since(before);
}

// One attempt with the n-th allocation failing. Was it met?
static bool attempt(const Operation& o, Failing how, long n) {
  nw_error error;
  memset(&error, 0x5A, sizeof error);
  o.before();
  const Live start = alive();
  fail_allocations(how, n);
  const int32_t status = o.run(&error);
  const Count count = stop_failing();
  ++report->attempts;
  if (status == NW_OK) {
    report->tolerated += count.failed != 0;
    if (!o.right()) wrong("succeeded with a wrong result");
    o.undo();
    return count.failed != 0;
  }
  ++report->refused;
  if (count.failed == 0) wrong("failed without having met the failure", &error);
  if (status != NW_OUT_OF_MEMORY) wrong("the status is not NW_OUT_OF_MEMORY", &error);
  if (!sane(error, status)) wrong("the error is not filled in, or says nothing of memory", &error);
  if (!o.untouched()) wrong("touched what a failure may not touch");
  o.undo_failure();
  if (!o.keeps) expect_no_leak(start);
  return count.failed != 0;
}

// setup, failure, success, teardown.
static bool round(const Operation& o, Failing how, long n) {
  say_where(o.name, how, n);
  const Live start = alive();
  o.setup();
  const bool met = attempt(o, how, n);
  expect_success(o, "the next attempt failed");
  o.teardown();
  expect_no_leak(start);
  return met;
}

void sweep(const Operation& o) {
  ++report->operations;
  say_where(o.name, Failing::once, 0);
  o.setup();
  expect_success(o, "failed with all the memory there is");
  o.teardown();
  for (const Failing how : {Failing::once, Failing::onwards}) {
    long n = 1;
    while (n < kMost && round(o, how, n)) ++n;
    if (n == kMost) wrong("there is no end to its allocations");
    if (o.allocates == (n == 1)) wrong(o.allocates ? "allocated nothing: nothing was tested" : "allocated");
    if (getenv("NARROWS_ATTACK_VERBOSE") != nullptr) std::printf("  %s: %ld allocations\n", o.name.c_str(), n - 1);
  }
}

// ---- processes ----

std::string inventory() {
  std::string out;
  for (uint32_t i = 0; i < nw_backend_count(rt); ++i) {
    nw_backend_info info{};
    info.struct_size = sizeof info;
    if (nw_backend(rt, i, &info, nullptr) != NW_OK) return "nw_backend failed";
    out += std::string(info.path) + " " + info.name + " " + std::to_string(info.status) + " " + info.reason + " " +
           std::to_string(info.num_ops) + "\n";
  }
  return out;
}

bool in_child(unsigned seconds, const std::function<void()>& work) {
  std::fflush(nullptr);
  const pid_t child = fork();
  if (child == 0) {
    alarm(seconds);
    work();
    std::fflush(nullptr);
    _exit(0);
  }
  int status = 0;
  if (child < 0 || waitpid(child, &status, 0) != child) return false;
  if (WIFEXITED(status) && WEXITSTATUS(status) == 0) return true;
  if (WIFSIGNALED(status) && WTERMSIG(status) == SIGALRM)
    wrong("never came back");
  else if (WIFSIGNALED(status))
    wrong(strsignal(WTERMSIG(status)));
  else
    wrong("ended the process");
  return false;
}

static int open_files() {
  int count = 0;
  DIR* const folder = opendir("/proc/self/fd");
  while (readdir(folder) != nullptr) ++count;
  closedir(folder);
  return count;
}

// Highway's library measures a timer when it is loaded, in a constructor, with a std::vector: memory that fails there ends the
// process inside dlopen, and nobody can catch it. So it is loaded before; all else that the cpu backend needs is not.
static void load_highway() { dlopen("libhwy.so.1", RTLD_NOW | RTLD_LOCAL); }

// One thing is not asked for. ld.so of glibc 2.36 keeps a plugin (it is linked with -z nodelete) whose list of needed libraries it
// had no memory for, and looks into the empty list ever after: the file is then refused in this process, with "undefined symbol" as
// the reason.
static bool broken_by_loader(const Operation& o) {
  nw_error error{};
  o.before();
  const bool refused = o.run(&error) != NW_OK && strstr(error.message, "undefined symbol") != nullptr;
  const bool broken = refused || inventory().find("undefined symbol") != std::string::npos;
  if (!refused) o.undo();
  return broken;
}

void sweep_cold(Operation o) {
  o.keeps = true;
  load_highway();
  ++report->operations;
  struct Shared {
    long blocks, files;
    bool met;
  };
  auto* const shared =
      static_cast<Shared*>(mmap(nullptr, sizeof(Shared), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0));
  const auto one = [&](Failing how, long n) {
    say_where(o.name, how, n);
    return in_child(kColdSeconds, [&] {
      const Live start = alive();
      o.setup();
      shared->met = attempt(o, how, n);
      if (broken_by_loader(o)) {
        ++report->broken_by_loader;
        return;
      }
      expect_success(o, "the next attempt failed");
      o.teardown();
      const long blocks = alive().blocks - start.blocks, files = open_files();
      if (n == kMost) {
        shared->blocks = blocks, shared->files = files;
        return;
      }
      if (files != shared->files) wrong("leaves files open");
      if (blocks == shared->blocks) return;
      wrong(("leaves " + std::to_string(blocks - shared->blocks) + " blocks behind").c_str());
      if (report->failures <= 3 && getenv("NARROWS_ATTACK_VERBOSE") != nullptr) print_live_since(start);
    });
  };
  if (!one(Failing::once, kMost)) return;  // without a failure: the measure
  for (const Failing how : {Failing::once, Failing::onwards}) {
    long n = 0;
    do {
      shared->met = true;  // a child that dies says nothing
      one(how, ++n);
    } while (shared->met && n < kMost && report->failures < 20);
    if (n == 1) wrong("allocated nothing: nothing was tested");
    if (report->broken_by_loader > 5) wrong("ld.so is not to blame for so many");
    report->loader += std::exchange(report->broken_by_loader, 0);
    if (getenv("NARROWS_ATTACK_VERBOSE") != nullptr) std::printf("  %s: %ld allocations\n", o.name.c_str(), n - 1);
  }
  munmap(shared, sizeof(Shared));
}

}  // namespace narrows::attack
