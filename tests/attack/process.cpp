// SPDX-License-Identifier: Apache-2.0
// process.cpp -- what else may live in the process: other versions of a library that a plugin needs, preloaded libraries with
// clashing names, and sixteen threads that load, call and destroy at once. The cases are run one by one: test_process CASE
// [ARGUMENT].
#include <dlfcn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <thread>

#include "samples.h"

using namespace narrows::attack;

namespace {

constexpr int kThreads = 16;
constexpr int kRounds = 3;
const std::string kPlugins = NARROWS_TEST_PLUGINS, kExample = EXAMPLE_PLUGIN, kDeps = DEP_PLUGINS;
std::atomic<int> failures{0};

void expect(bool good, const std::string& what, const nw_error* error = nullptr) {
  if (good) return;
  ++failures;
  std::fprintf(stderr, "  wrong: %s%s%s\n", what.c_str(), error != nullptr ? ": " : "", error != nullptr ? error->message : "");
}

void crowd(const std::function<void(int)>& work) {
  std::atomic<bool> go{false};
  std::vector<std::thread> all;
  for (int i = 0; i < kThreads; ++i)
    all.emplace_back([&, i] {
      while (!go) std::this_thread::yield();
      work(i);
    });
  go = true;
  for (std::thread& thread : all) thread.join();
}

// All samples, with the bytes that a runtime used by nobody else gives.
Samples learned(uint32_t threads) {
  Samples all = builtin_samples(false);
  for (auto& large : builtin_samples(true))
    if (large->what().find(" f32") != std::string::npos) all.push_back(std::move(large));
  all.push_back(plugin_sample());
  nw_runtime* const rt = create(threads);
  nw_error error{};
  expect(nw_load(rt, kExample.c_str(), &error) == NW_OK, "nw_load", &error);
  for (const auto& sample : all) {
    sample->poison();
    expect(nw_run(rt, &sample->call, &error) == NW_OK, sample->what(), &error);
    sample->expect_these_bytes();
  }
  nw_runtime_destroy(rt);
  return all;
}

void run_all(nw_runtime* rt, const Samples& mine, const std::string& who) {
  for (const auto& sample : mine) {
    nw_error error{};
    expect(sample->run(rt, &error) == NW_OK, who + sample->what(), &error);
  }
}

// Each thread has runtimes of its own.
void own_runtimes() {
  std::vector<Samples> samples;
  for (int i = 0; i < kThreads; ++i) samples.push_back(learned(2));
  crowd([&](int i) {
    for (int round = 0; round < kRounds; ++round) {
      nw_runtime* const rt = create(1 + static_cast<uint32_t>(i + round) % 3);
      nw_error error{};
      expect(nw_load(rt, kExample.c_str(), &error) == NW_OK, "nw_load", &error);
      run_all(rt, samples[static_cast<size_t>(i)], "own runtime: ");
      if (round % 2 == 0) nw_plan_cache_clear(rt);
      run_all(rt, samples[static_cast<size_t>(i)], "again: ");
      nw_runtime_destroy(rt);
    }
  });
}

// All threads share one, and load plugins, good and bad ones, while they call.
void shared_runtime() {
  std::vector<Samples> samples;
  for (int i = 0; i < kThreads; ++i) samples.push_back(learned(2));
  nw_runtime* const rt = create(3);
  nw_error error{};
  expect(nw_load(rt, kExample.c_str(), &error) == NW_OK, "nw_load", &error);
  static const char* const names[kThreads] = {"probe",
                                              "probe2",
                                              "probecl",
                                              "fine",
                                              "fine_short",
                                              "fine_long",
                                              "fine_builtin",
                                              "fine_newer",
                                              "fine_no_version",
                                              "shapes",
                                              "fault_null_launch",
                                              "fault_no_symbol",
                                              "fine_no_ops",
                                              "fault_op_flags",
                                              "fault_missing_library",
                                              "fine_more_params"};
  crowd([&](int i) {
    const std::string path = kPlugins + "/narrows_" + names[i] + ".so";
    const bool good = std::strncmp(names[i], "fault", 5) != 0;
    for (int round = 0; round < kRounds; ++round) {
      run_all(rt, samples[static_cast<size_t>(i)], "shared runtime: ");
      nw_error why{};
      if (round == 0) expect((nw_load(rt, path.c_str(), &why) == NW_OK) == good, path, &why);
      if (i % 4 == 0) nw_plan_cache_clear(rt);
    }
  });
  expect(nw_backend_count(rt) == 2 + kThreads, "every plugin is listed");
  nw_runtime_destroy(rt);
}

// ---- two versions of one library ----

// example.mod_add/1 by that plugin: the sum, times what its library says.
float result_of(nw_runtime* rt, const char* backend, nw_error* error) {
  float b[1] = {2}, c[3] = {1, 2, 3}, a[3] = {};
  int64_t one = 1, three = 3;
  const DLDataType f32{kDLFloat, 32, 1};
  const DLTensor tb{b, {kDLCPU, 0}, 1, f32, &one, nullptr, 0}, tc{c, {kDLCPU, 0}, 1, f32, &three, nullptr, 0};
  const DLTensor ta{a, {kDLCPU, 0}, 1, f32, &three, nullptr, 0};
  const DLTensor *inputs[] = {&tb, &tc}, *outputs[] = {&ta};
  nw_call call{};
  call.struct_size = sizeof call;
  call.op = "example.mod_add/1";
  call.num_inputs = 2, call.inputs = inputs;
  call.num_outputs = 1, call.outputs = outputs;
  call.params = &one, call.params_size = sizeof one;
  call.backend = backend;
  return nw_run(rt, &call, error) == NW_OK ? a[2] : -1;
}

// Two versions with the same symbols and, as it should be, two sonames: each plugin sees its own.
void versions() {
  nw_runtime* const rt = create(2);
  nw_error error{};
  for (const char* name : {"dep1", "dep2"})
    expect(nw_load(rt, (kDeps + "/narrows_" + name + ".so").c_str(), &error) == NW_OK, name, &error);
  for (int i = 0; i < 2; ++i) {
    expect(result_of(rt, "dep1", &error) == 5, "dep1 sees version 1", &error);
    expect(result_of(rt, "dep2", &error) == 10, "dep2 sees version 2", &error);
  }
  nw_runtime_destroy(rt);
}

// Two versions under one soname: a process has one library of a soname, so the second plugin is refused by its symbols' version,
// and says which; the first is not disturbed.
void one_soname() {
  nw_runtime* const rt = create(2);
  nw_error error{};
  expect(nw_load(rt, (kDeps + "/narrows_same1.so").c_str(), &error) == NW_OK, "same1", &error);
  const int32_t status = nw_load(rt, (kDeps + "/narrows_same2.so").c_str(), &error);
  expect(status == NW_UNAVAILABLE && std::strstr(error.message, "DEP_2") != nullptr, "same2 is refused for DEP_2", &error);
  expect(result_of(rt, "same1", &error) == 5, "same1 works on", &error);
  expect(result_of(rt, "same2", &error) == -1 && std::strstr(error.message, "same2") != nullptr, "same2 is not there", &error);
  nw_runtime_destroy(rt);
}

// ---- preloaded libraries ----

// The bytes that all ops give, as a number; or why there is no backend.
std::string digest() {
  if (getenv("LD_PRELOAD") != nullptr && dlsym(RTLD_DEFAULT, "narrows_test_preloaded") == nullptr) return "it was not preloaded";
  nw_runtime* const rt = create(3);
  nw_error error{};
  nw_backend_info info{};
  info.struct_size = sizeof info;
  if (nw_backend(rt, 0, &info, &error) != NW_OK) return std::string("no backend: ") + error.message;
  if (info.status != NW_OK) {
    Samples samples = builtin_samples(false);
    const int32_t status = samples[0]->run(rt, &error);
    return std::to_string(info.status) + " " + info.reason + "; nw_run: " + std::to_string(status) + " " + error.message;
  }
  uint64_t sum = 14695981039346656037u;
  for (const bool large : {false, true})
    for (const auto& sample : builtin_samples(large)) {
      sample->poison();
      if (nw_run(rt, &sample->call, &error) != NW_OK) return sample->what() + ": " + error.message;
      for (uint32_t i = 0; i < sample->call.num_outputs; ++i) {
        const DLTensor* const t = sample->call.outputs[i];
        size_t size = t == nullptr ? 0 : t->dtype.bits / 8;
        for (int32_t d = 0; t != nullptr && d < t->ndim; ++d) size *= static_cast<size_t>(t->shape[d]);
        for (size_t k = 0; k < size; ++k) sum = (sum ^ static_cast<unsigned char*>(t->data)[k]) * 1099511628211u;
      }
    }
  nw_runtime_destroy(rt);
  return "digest " + std::to_string(sum);
}

// What this program prints for `digest` with a library preloaded ("": none).
std::string output_with(const std::string& library) {
  int ends[2];
  if (pipe(ends) != 0) std::abort();
  const pid_t child = fork();
  if (child == 0) {
    dup2(ends[1], 1);
    if (!library.empty()) setenv("LD_PRELOAD", library.c_str(), 1);
    execl("/proc/self/exe", "test_process", "digest", static_cast<char*>(nullptr));
    _exit(127);
  }
  close(ends[1]);
  std::string out;
  char part[4096];
  for (ssize_t n; (n = read(ends[0], part, sizeof part)) > 0;) out.append(part, static_cast<size_t>(n));
  close(ends[0]);
  int status = 0;
  waitpid(child, &status, 0);
  return WIFEXITED(status) && WEXITSTATUS(status) == 0 ? out : "ended with " + std::to_string(status) + ": " + out;
}

void preloaded(const std::string& library) {
  const std::string plain = output_with(""), with = output_with(library);
  expect(plain.rfind("digest ", 0) == 0, plain);
  expect(with == plain, with + " with " + library + ", without it " + plain);
}

// Another library under the name of one that the cpu backend needs: it cannot be had, and the reason says what is missing.
void impostor(const std::string& library) {
  const std::string with = output_with(library);
  expect(with.rfind("3 cannot be loaded: ", 0) == 0 && with.find("Sleef_") != std::string::npos, "the reason: " + with);
  expect(with.find("nw_run: 3 ") != std::string::npos, "nw_run: " + with);
}

int run(const std::string& name, const char* argument) {
  if (name == "own_runtimes")
    own_runtimes();
  else if (name == "shared_runtime")
    shared_runtime();
  else if (name == "versions")
    versions();
  else if (name == "one_soname")
    one_soname();
  else if (name == "digest")
    std::printf("%s", digest().c_str());
  else if (name == "preloaded" && argument != nullptr)
    preloaded(argument);
  else if (name == "impostor" && argument != nullptr)
    impostor(argument);
  else
    return std::fprintf(stderr, "test_process: unknown case '%s'\n", name.c_str()), 2;
  return failures == 0 ? 0 : 1;
}

}  // namespace

int main(int argc, char** argv) { return argc >= 2 ? run(argv[1], argc > 2 ? argv[2] : nullptr) : 2; }
