// SPDX-License-Identifier: Apache-2.0
// libraries.cpp -- a program that is not linked with libnarrows and loads it by dlopen, as interpreters do: two builds of it at
// once, each with plugins of its own; and a thread that calls for the first time while malloc gives nothing.
//   test_libraries FOLDER OTHER_FOLDER     each with libnarrows.so.1 and narrows/backends
#include <dlfcn.h>

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>
#include <thread>

#include "samples.h"
#ifndef NARROWS_SANITIZED
#include "allocator.h"
#endif

using namespace narrows::attack;

namespace {

int failures = 0;

void expect(bool good, const char* what, const nw_error* error = nullptr) {
  if (good) return;
  ++failures;
  std::fprintf(stderr, "  wrong: %s%s%s\n", what, error != nullptr ? ": " : "", error != nullptr ? error->message : "");
}

// The functions of one libnarrows, and a runtime of it.
struct Library {
  explicit Library(const std::string& folder)
      : folder(folder), handle(dlopen((folder + "/libnarrows.so.1").c_str(), RTLD_NOW | RTLD_LOCAL)) {
    if (handle == nullptr) std::fprintf(stderr, "%s\n", dlerror()), std::exit(1);
    get(version, "nw_version"), get(create, "nw_runtime_create"), get(destroy, "nw_runtime_destroy"), get(run, "nw_run");
    get(plan, "nw_plan_get"), get(launch, "nw_launch"), get(release, "nw_plan_release"), get(clear, "nw_plan_cache_clear");
    get(backend, "nw_backend");
    nw_options options{};
    options.struct_size = sizeof options;
    options.num_threads = 3;
    options.plugin_path = "";
    nw_error error{};
    expect(create(&options, &rt, &error) == NW_OK, "nw_runtime_create", &error);
  }
  template <class Function>
  void get(Function*& out, const char* name) {
    out = reinterpret_cast<Function*>(dlsym(handle, name));
    if (out == nullptr) std::fprintf(stderr, "%s\n", dlerror()), std::exit(1);
  }
  std::string path_of_backend() {
    nw_backend_info info{};
    info.struct_size = sizeof info;
    return backend(rt, 0, &info, nullptr) == NW_OK && info.status == NW_OK ? info.path : "none";
  }

  std::string folder;
  void* handle;
  nw_runtime* rt = nullptr;
  decltype(nw_version)* version;
  decltype(nw_runtime_create)* create;
  decltype(nw_runtime_destroy)* destroy;
  decltype(nw_run)* run;
  decltype(nw_plan_get)* plan;
  decltype(nw_launch)* launch;
  decltype(nw_plan_release)* release;
  decltype(nw_plan_cache_clear)* clear;
  decltype(nw_backend)* backend;
};

void run_all(Library& library, const Samples& samples, bool learn) {
  for (const auto& sample : samples) {
    nw_error error{};
    sample->poison();
    expect(library.run(library.rt, &sample->call, &error) == NW_OK, sample->what().c_str(), &error);
    if (learn) sample->expect_these_bytes();
    expect(sample->right(), sample->what().c_str());
  }
}

void two_builds(Library& one, Library& other, const Samples& samples) {
  expect(std::strcmp(one.version(), other.version()) != 0, "they are two builds");
  expect(one.path_of_backend().rfind(one.folder, 0) == 0, one.path_of_backend().c_str());
  expect(other.path_of_backend().rfind(other.folder, 0) == 0, other.path_of_backend().c_str());
  run_all(one, samples, true);
  run_all(other, samples, false);
  // Plans and caches know nothing of each other.
  nw_plan* plan = nullptr;
  nw_error error{};
  expect(one.plan(one.rt, &samples[0]->call, &plan, nullptr, &error) == NW_OK, "nw_plan_get", &error);
  other.clear(other.rt);
  other.destroy(other.rt);
  samples[0]->poison();
  expect(one.launch(plan, &samples[0]->call, &error) == NW_OK && samples[0]->right(), "nw_launch", &error);
  one.release(plan);
  run_all(one, samples, false);
}

#ifndef NARROWS_SANITIZED
// libnarrows came by dlopen, so its thread-local memory is not the program's: a thread must not need malloc for it.
void new_thread(Library& library, Sample& sample) {
  nw_error error{};
  int32_t status = NW_FAILED;
  sample.poison();
  std::thread([&] {
    fail_allocations(Failing::onwards, 1);
    status = library.run(library.rt, &sample.call, &error);
    stop_failing();
  }).join();
  expect(status == NW_OK && sample.right(), "a cached call by a new thread without malloc", &error);
}
#endif

}  // namespace

int main(int argc, char** argv) {
  if (argc != 3) return 2;
  Samples samples = builtin_samples(false);
  for (auto& large : builtin_samples(true)) samples.push_back(std::move(large));
  Library one(argv[1]), other(argv[2]);
  two_builds(one, other, samples);
#ifndef NARROWS_SANITIZED
  for (const auto& sample : samples)  // without a workspace: elementwise
    if (std::strcmp(sample->call.op, "elementwise") == 0) new_thread(one, *sample);
#endif
  one.destroy(one.rt);
  return failures == 0 ? 0 : 1;
}
