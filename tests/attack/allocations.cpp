// SPDX-License-Identifier: Apache-2.0
// allocations.cpp -- every allocation fails once. For n = 1, 2, ... the n-th allocation of an operation fails, then it and all
// after it, until the operation is done without having met the failure. After each failure: NW_OUT_OF_MEMORY with a message, no
// output touched, nothing leaked, and the same operation again succeeds with the right bytes. What gives back or destroys needs no
// memory.
//
// Each group runs in a child process, so that a crash or a call that never returns is that group's failure. In a cold group each n
// has a process of its own, in which nothing was loaded before: ld.so allocates from the same malloc, and has to survive it too.
//
//   test_allocations [GROUP]      test_allocations --list
#include <sys/mman.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <functional>
#include <map>
#include <set>

#include "samples.h"
#include "sweep.h"

using namespace narrows::attack;

namespace {

constexpr unsigned kSeconds = 400;  // of one group

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
    return now.find("cpu 0  ") != std::string::npos && now == expected;  // usable: no reason stands between
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
