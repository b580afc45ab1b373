// allocations.cpp -- every allocation fails once. For n = 1, 2, ... the n-th allocation of an operation fails, then it and all
// after it, until the operation is done without having met the failure. After each failure: NW_OUT_OF_MEMORY with a message, no
// output touched, nothing leaked, and the same operation again succeeds with the right bytes. What gives back or destroys needs no
// memory.
//
// Each group runs in a child process, so that a crash or a call that never returns is that group's failure. In a cold group each n
// has a process of its own, in which nothing was loaded before: ld.so allocates from the same malloc, and has to survive it too.
//
//   test_allocations [GROUP]      test_allocations --list
#include <dirent.h>
#include <dlfcn.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <functional>
#include <map>
#include <set>
#include <utility>

#include "allocator.h"
#include "samples.h"

using namespace narrows::attack;

namespace {

constexpr long kMost = 20000;          // allocations of one operation
constexpr unsigned kSeconds = 60;      // of one group
constexpr unsigned kColdSeconds = 30;  // of one attempt in a process of its own

// ---- what is told to the parent ----

struct Report {
  char where[256];  // what is under way, for who dies in the middle
  long operations, attempts, refused, tolerated, broken_by_loader, loader, failures;
};
Report* report;

void say_where(const std::string& operation, Failing how, long n) {
  std::snprintf(report->where, sizeof report->where, "%s, allocation %ld %s", operation.c_str(), n,
                how == Failing::once ? "failing" : "and all after it failing");
}

void wrong(const char* what, const nw_error* error = nullptr) {
  if (++report->failures > 20) return;
  std::fprintf(stderr, "  %s: %s%s%s\n", report->where, what, error != nullptr ? ": " : "", error != nullptr ? error->message : "");
}

// ---- one operation under attack ----

struct Operation {
  std::string name;
  std::function<int32_t(nw_error*)> run;
  std::function<bool()> right = [] { return true; };      // after success: it did all that it says
  std::function<bool()> untouched = [] { return true; };  // after a failure
  std::function<void()> before = [] {};                   // each attempt
  std::function<void()> undo = [] {};                     // what a success made
  std::function<void()> undo_failure = [] {};             // what a failure may keep: a plan that was made before it
  std::function<void()> setup = [] {}, teardown = [] {};  // around a failure and the attempt that follows
  bool keeps = false;                                     // a failure may leave lazily made things behind, until teardown
  bool allocates = true;                                  // false: it must not
};

bool sane(const nw_error& error, int32_t status) {
  return error.status == status && error.argument == -1 && memchr(error.message, '\0', sizeof error.message) != nullptr &&
         (strstr(error.message, "memory") != nullptr || strstr(error.message, "Memory") != nullptr);
}

void expect_success(const Operation& o, const char* which) {
  nw_error error{};
  o.before();
  if (o.run(&error) != NW_OK)
    wrong(which, &error);
  else if (!o.right())
    wrong("succeeded with a wrong result");
  else
    return o.undo();
}

// Blocks alive, without what glibc keeps for the next dlerror() of the thread.
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
bool attempt(const Operation& o, Failing how, long n) {
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
bool round(const Operation& o, Failing how, long n) {
  say_where(o.name, how, n);
  const Live start = alive();
  o.setup();
  const bool met = attempt(o, how, n);
  expect_success(o, "the next attempt failed");
  o.teardown();
  expect_no_leak(start);
  return met;
}

// All n of one operation in this process, after it ran once, so that what is made once per process is there.
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

nw_runtime* rt;  // of the operation under way

// What nw_backend says of all plugins.
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

// Runs work in a child; false when it crashed, hung or ended otherwise.
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

int open_files() {
  int count = 0;
  DIR* const folder = opendir("/proc/self/fd");
  while (readdir(folder) != nullptr) ++count;
  closedir(folder);
  return count;
}

// Highway's library measures a timer when it is loaded, in a constructor, with a std::vector: memory that fails there ends the
// process inside dlopen, and nobody can catch it. So it is loaded before; all else that the cpu backend needs is not.
void load_highway() { dlopen("libhwy.so.1", RTLD_NOW | RTLD_LOCAL); }

// All n of an operation that is the first of its process, each in a new one. What remains alive at the end must be what remains
// without a failure: what a process makes once.
//
// One thing is not asked for. ld.so of glibc 2.36 keeps a plugin (it is linked with -z nodelete) whose list of needed libraries it
// had no memory for, and looks into the empty list ever after: the file is then refused in this process, with "undefined symbol" as
// the reason.
bool broken_by_loader(const Operation& o) {
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

// ---- the groups ----

const std::string kPlugins = NARROWS_TEST_PLUGINS, kExample = EXAMPLE_PLUGIN;

Operation creation(const std::string& folder) {
  static std::string expected;
  expected.clear();
  Operation o;
  o.name = "nw_runtime_create" + (folder.empty() ? "" : " with " + folder);
  o.before = [] { rt = nullptr; };
  o.run = [folder](nw_error* error) {
    nw_options options{};
    options.struct_size = sizeof options;
    options.num_threads = 3;
    options.plugin_path = folder.c_str();
    options.log = [](void*, int32_t, const char*) {};  // refused plugins are part of the game
    return nw_runtime_create(&options, &rt, error);
  };
  o.untouched = [] { return rt == nullptr; };
  o.right = [] {
    const std::string now = inventory();
    if (expected.empty()) expected = now;
    return now.find("cpu 0  6\n") != std::string::npos && now == expected;
  };
  o.undo = [] { nw_runtime_destroy(rt); };
  return o;
}

// A folder with good plugins and some that are refused.
std::string folder_of_plugins() {
  char folder[] = "/tmp/narrows_attack_XXXXXX";
  if (mkdtemp(folder) == nullptr) std::abort();
  for (const char* name : {"fine", "probe", "fault_no_symbol", "fault_null_launch", "fault_op_rule_syntax", "fault_refuses"})
    if (symlink((kPlugins + "/narrows_" + name + ".so").c_str(), (std::string(folder) + "/narrows_" + name + ".so").c_str()) != 0)
      std::abort();
  if (symlink("/dev/null", (std::string(folder) + "/narrows_device.so").c_str()) != 0) std::abort();
  return folder;
}

void with_runtime(Operation& o, uint32_t threads = 3) {
  o.setup = [threads] { rt = create(threads); };
  o.teardown = [] { nw_runtime_destroy(rt); };
}

Operation loading(const std::string& path, int32_t expected) {
  Operation o;
  with_runtime(o);
  static uint32_t count;
  o.name = "nw_load of " + path.substr(path.rfind('/') + 1);
  o.before = [] { count = nw_backend_count(rt); };
  o.run = [path, expected](nw_error* error) {
    const int32_t status = nw_load(rt, path.c_str(), error);
    return status == expected ? NW_OK : status == NW_OK ? NW_FAILED : status;
  };
  o.untouched = [] { return nw_backend_count(rt) == count; };
  o.right = [] { return nw_backend_count(rt) == count + 1; };
  o.keeps = true;
  return o;
}

Operation running(Sample& sample, const char* kernel, bool cached) {
  Operation o;
  o.name =
      std::string("nw_run ") + (cached ? "cached " : "") + sample.what() + (kernel != nullptr ? std::string(" ") + kernel : "");
  o.before = [&sample, kernel] {
    sample.call.kernel = kernel;
    sample.poison();
  };
  o.run = [&sample](nw_error* error) { return nw_run(rt, &sample.call, error); };
  o.untouched = [&sample] { return sample.poisoned(); };
  o.right = [&sample] { return sample.right(); };
  if (!cached) o.undo = o.undo_failure = [] { nw_plan_cache_clear(rt); };
  return o;
}

// The sample's own bytes, from a call that meets no failure. False where the kernel cannot do it.
bool learn(Sample& sample, const char* kernel) {
  sample.call.kernel = kernel;
  sample.poison();
  nw_error error{};
  const int32_t status = nw_run(rt, &sample.call, &error);
  if (status == NW_OK) sample.expect_these_bytes();
  if (status != NW_OK && (kernel == nullptr || status != NW_UNSUPPORTED)) wrong("failed with all the memory there is", &error);
  nw_plan_cache_clear(rt);
  return status == NW_OK;
}

void run_sample(Sample& sample, std::set<std::string>& ran) {
  for (const char* kernel : kernels(rt, sample.call.op)) {
    if (!learn(sample, kernel)) continue;
    ran.insert(std::string(sample.call.op) + "/" + (kernel != nullptr ? kernel : ""));
    sweep(running(sample, kernel, false));
    Operation cached = running(sample, kernel, true);
    nw_plan_info info{};
    info.struct_size = sizeof info;
    nw_plan_get(rt, &sample.call, nullptr, &info, nullptr);
    cached.allocates = info.workspace_size != 0;  // the workspace, and nothing else
    sweep(cached);
    nw_plan_cache_clear(rt);
  }
}

void run_samples(Samples samples) {
  rt = create(3);
  std::set<std::string> ran;
  for (const auto& sample : samples) run_sample(*sample, ran);
  for (const auto& sample : samples)
    for (const char* kernel : kernels(rt, sample->call.op))
      if (ran.count(std::string(sample->call.op) + "/" + (kernel != nullptr ? kernel : "")) == 0) wrong(kernel);
  nw_runtime_destroy(rt);
}

// The calls around a run: planning alone, inference, a launch of a plan that is held.
void around(Sample& sample) {
  static nw_plan* plan;
  learn(sample, nullptr);
  sample.call.kernel = nullptr;
  Operation infer;
  static nw_spec specs[8];
  infer.name = "nw_infer " + sample.what();
  infer.run = [&](nw_error* error) { return nw_infer(rt, &sample.call, specs, sample.call.num_outputs, error); };
  infer.before = [] { memset(specs, 0x5A, sizeof specs); };
  infer.right = [&] {
    return specs[0].ndim == sample.call.outputs[0]->ndim && specs[0].shape[0] == sample.call.outputs[0]->shape[0];
  };
  infer.untouched = [] { return specs[0].ndim == 0x5A5A5A5A; };
  sweep(infer);

  Operation ask;
  ask.name = "nw_plan_get asking " + sample.what();
  ask.run = [&](nw_error* error) { return nw_plan_get(rt, &sample.call, nullptr, nullptr, error); };
  sweep(ask);

  Operation get;
  get.name = "nw_plan_get " + sample.what();
  get.before = [&] { plan = nullptr, sample.poison(); };
  get.run = [&](nw_error* error) { return nw_plan_get(rt, &sample.call, &plan, nullptr, error); };
  get.untouched = [] { return plan == nullptr; };
  get.right = [&] { return nw_launch(plan, &sample.call, nullptr) == NW_OK && sample.right(); };
  get.undo = [] { nw_plan_release(plan), nw_plan_cache_clear(rt); };
  sweep(get);

  Operation launch = running(sample, nullptr, true);
  nw_plan_info info{};
  info.struct_size = sizeof info;
  if (nw_plan_get(rt, &sample.call, &plan, &info, nullptr) != NW_OK) return wrong("no plan");
  launch.name = "nw_launch " + sample.what();
  launch.run = [&](nw_error* error) { return nw_launch(plan, &sample.call, error); };
  launch.allocates = info.workspace_size != 0;
  sweep(launch);
  nw_plan_release(plan);
  nw_plan_cache_clear(rt);
}

void group_around() {
  rt = create(3);
  for (const bool large : {false, true})
    for (const auto& sample : builtin_samples(large))
      if (sample->what().find("f32") != std::string::npos) around(*sample);
  if (nw_load(rt, kExample.c_str(), nullptr) != NW_OK) wrong("the example plugin cannot be loaded");
  const auto own = plugin_sample();
  around(*own);
  std::set<std::string> ran;
  run_sample(*own, ran);
  nw_runtime_destroy(rt);
}

// The first call in a runtime opens the backend and starts the threads.
void group_first() {
  for (const auto& sample : builtin_samples(true)) {
    if (sample->what().find("f32") == std::string::npos) continue;
    rt = create(4);
    learn(*sample, nullptr);
    nw_runtime_destroy(rt);
    Operation o = running(*sample, nullptr, false);
    with_runtime(o, 4);
    o.name = "first " + o.name;
    o.keeps = true;
    sweep(o);
  }
}

// Small functions of narrows.h.
void group_small() {
  static nw_backend_info backend;
  static nw_device_info device;
  static const nw_op* op;
  static void* data;
  static std::string name;
  const DLDevice cpu{kDLCPU, 0};
  Operation o;
  with_runtime(o);
  o.keeps = true;
  o.name = "nw_backend";
  o.before = [] { backend = {}, backend.struct_size = sizeof backend; };
  o.run = [](nw_error* error) { return nw_backend(rt, 0, &backend, error); };
  o.right = [] { return backend.status == NW_OK && strcmp(backend.name, "cpu") == 0 && backend.device_count == 1; };
  o.untouched = [] { return backend.name == nullptr; };
  sweep(o);

  o.name = "nw_device";
  o.before = [] { device = {}, device.struct_size = sizeof device; };
  o.run = [=](nw_error* error) { return nw_device(rt, cpu, &device, error); };
  o.right = [] {
    if (name.empty()) name = device.name;
    return device.total_memory != 0 && device.name == name;
  };
  o.untouched = [] { return device.total_memory == 0 && device.name[0] == '\0'; };
  sweep(o);

  o.name = "nw_find_op";
  o.before = [] { op = nullptr; };
  o.run = [](nw_error* error) { return nw_find_op(rt, "elementwise_backward", &op, error); };
  o.right = [] { return strcmp(op->name, "elementwise_backward") == 0; };
  o.untouched = [] { return op == nullptr; };
  sweep(o);

  o.name = "nw_alloc";
  o.before = [] { data = nullptr; };
  o.run = [=](nw_error* error) { return nw_alloc(rt, cpu, 10000, nullptr, &data, error); };
  o.right = [] { return data != nullptr && memset(data, 1, 10000) == data; };
  o.untouched = [] { return data == nullptr; };
  o.undo = [=] { nw_free(rt, cpu, data, nullptr, nullptr); };
  sweep(o);
}

// What gives back needs no memory, and neither does what only looks; nor does a copy, once the device is open.
void group_giving_back() {
  static void* data;
  static nw_plan* plan;
  static char from[4], to[4];
  const DLDevice cpu{kDLCPU, 0};
  auto samples = builtin_samples(true);
  Sample& sample = *samples[0];
  rt = create(3);
  learn(sample, nullptr);
  nw_runtime_destroy(rt);

  Operation o;
  o.allocates = false;
  o.setup = [] { rt = create(3); };
  o.before = [&sample] {
    if (rt == nullptr) rt = create(3);
    if (sample.run(rt) != NW_OK) wrong("nw_run");
  };
  o.name = "nw_runtime_destroy";
  o.run = [](nw_error*) { return nw_runtime_destroy(rt), rt = nullptr, NW_OK; };
  sweep(o);

  with_runtime(o);
  o.name = "nw_plan_cache_clear";
  o.run = [](nw_error*) { return nw_plan_cache_clear(rt), NW_OK; };
  sweep(o);

  o.name = "nw_backend_count";
  o.run = [](nw_error*) { return nw_backend_count(rt) == 1 ? NW_OK : NW_FAILED; };
  sweep(o);

  o.name = "nw_copy";
  o.run = [=](nw_error* error) { return nw_copy(rt, cpu, to, cpu, from, sizeof from, nullptr, error); };
  sweep(o);

  o.name = "nw_stream_sync";
  o.run = [=](nw_error* error) { return nw_stream_sync(rt, cpu, nullptr, error); };
  sweep(o);

  o.name = "nw_plan_release";
  o.before = [&sample] {
    if (nw_plan_get(rt, &sample.call, &plan, nullptr, nullptr) != NW_OK) wrong("nw_plan_get");
    nw_plan_cache_clear(rt);  // this reference is the last
  };
  o.run = [](nw_error*) { return nw_plan_release(plan), NW_OK; };
  sweep(o);

  o.name = "nw_free";
  o.before = [=] { nw_alloc(rt, cpu, 4096, nullptr, &data, nullptr); };
  o.run = [=](nw_error* error) { return nw_free(rt, cpu, data, nullptr, error); };
  sweep(o);
}

// A call that would be refused anyway: the reason, or NW_OUT_OF_MEMORY where there is no memory to say it.
void group_refusals() {
  auto samples = builtin_samples(false);
  Sample& sample = *samples[0];
  rt = create(3);
  learn(sample, nullptr);
  const auto refused = [&](const char* what, int32_t expected) {
    Operation o;
    o.name = std::string("refusing ") + what;
    o.before = [&sample] { sample.poison(); };
    o.run = [&sample, expected](nw_error* error) {
      const int32_t status = nw_run(rt, &sample.call, error);
      return status == expected ? NW_OK : status == NW_OK ? NW_FAILED : status;
    };
    o.right = o.untouched = [&sample] { return sample.poisoned(); };
    sweep(o);
  };
  sample.call.kernel = "no_such_kernel";
  refused("a kernel", NW_UNSUPPORTED);
  sample.call.kernel = nullptr;
  sample.call.backend = "no_such_backend";
  refused("a backend", NW_INVALID);
  sample.call.backend = nullptr;
  sample.call.op = "no_such_op";
  refused("an op", NW_INVALID);
  sample.call.op = "conv1d";
  sample.call.device = {kDLMetal, 3};
  refused("a device", NW_INVALID);
  sample.call.device = {};
  sample.call.num_inputs = 1;
  refused("an input that is not there", NW_INVALID);
  nw_runtime_destroy(rt);
}

void group_create() { sweep(creation("")); }
void group_create_cold() { sweep_cold(creation("")); }
void group_create_folder() {
  const std::string folder = folder_of_plugins();
  sweep(creation(folder));
  std::filesystem::remove_all(folder);
}

void group_load() {
  sweep(loading(kExample, NW_OK));
  sweep(loading(kPlugins + "/narrows_probe.so", NW_OK));
  sweep(loading(kPlugins + "/narrows_fault_null_launch.so", NW_INVALID));
  sweep(loading(kPlugins + "/narrows_fault_no_symbol.so", NW_INVALID));
  sweep(loading(kPlugins + "/narrows_fault_missing_library.so", NW_UNAVAILABLE));
  sweep(loading("/nowhere/narrows_x.so", NW_INVALID));
}
void group_load_cold() {
  sweep_cold(loading(kExample, NW_OK));
  sweep_cold(loading(kPlugins + "/narrows_fault_missing_library.so", NW_UNAVAILABLE));
}

// The system gives no thread: the call is done by those that there are, and so is the next.
void group_threads() {
  constexpr uint32_t kThreads = 5;
  for (const auto& sample : builtin_samples(true)) {
    if (sample->what().find("f32") == std::string::npos) continue;
    rt = create(kThreads);
    learn(*sample, nullptr);
    nw_runtime_destroy(rt);
    ++report->operations;
    for (const Failing how : {Failing::once, Failing::onwards})
      for (long n = 1; n < kThreads; ++n) {
        std::snprintf(report->where, sizeof report->where, "nw_run %s, thread %ld not granted", sample->what().c_str(), n);
        const Live start = alive();
        rt = create(kThreads);
        fail_threads(how, n);
        nw_error error{};
        if (sample->run(rt, &error) != NW_OK) wrong("failed", &error);
        const Count count = stop_failing();
        ++report->attempts;
        report->tolerated += count.failed;
        // Ops without enough work start none.
        if (count.asked != 0 && count.failed == 0) wrong("the thread was granted");
        if (sample->run(rt, &error) != NW_OK) wrong("the next call failed", &error);
        nw_runtime_destroy(rt);
        expect_no_leak(start);
      }
  }
  if (report->tolerated == 0) wrong("no thread was asked for: nothing was tested");
}

const std::map<std::string, std::function<void()>> kGroups = {
    {"create", group_create},
    {"create_cold", group_create_cold},
    {"create_folder", group_create_folder},
    {"load", group_load},
    {"load_cold", group_load_cold},
    {"run_small", [] { run_samples(builtin_samples(false)); }},
    {"run_large", [] { run_samples(builtin_samples(true)); }},
    {"around", group_around},
    {"first", group_first},
    {"small", group_small},
    {"giving_back", group_giving_back},
    {"refusals", group_refusals},
    {"threads", group_threads},
};

bool run_group(const std::string& name, const std::function<void()>& group) {
  *report = {};
  const bool ended = name.find("cold") != std::string::npos ? (group(), true) : in_child(kSeconds, group);
  std::printf("%s: %ld operations, %ld attempts: %ld refused, %ld done without it; %ld wrong\n", name.c_str(), report->operations,
              report->attempts, report->refused, report->tolerated, report->failures);
  if (report->loader != 0) std::printf("  after %ld of them ld.so cannot load the plugin any more\n", report->loader);
  return ended && report->failures == 0 && report->attempts != 0;
}

}  // namespace

int main(int argc, char** argv) {
  report = static_cast<Report*>(mmap(nullptr, sizeof(Report), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0));
  if (argc == 2 && strcmp(argv[1], "--list") == 0) {
    for (const auto& [name, group] : kGroups) std::printf("%s\n", name.c_str());
    return 0;
  }
  bool good = true, found = false;
  for (const auto& [name, group] : kGroups) {
    if (argc == 2 && name != argv[1]) continue;
    found = true;
    good &= run_group(name, group);
  }
  if (!found) std::fprintf(stderr, "test_allocations: unknown group; --list names them\n");
  return good && found ? 0 : 1;
}
