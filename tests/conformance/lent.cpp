// SPDX-License-Identifier: Apache-2.0
// lent.cpp -- what a caller lends to a slot of the plugin under test: read only, and no longer than the slot runs. The signature,
// the call, everything that they point to, and on the CPU the inputs too, lie on pages that may only be read meanwhile, and not
// even that afterwards: who writes there, or looks again later, ends the process. And the state of the process and of the caller's
// thread, which stays as it was.
#include <sched.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <catch2/catch_test_macros.hpp>
#include <clocale>
#include <csignal>
#include <cstring>
#include <iterator>

#include "plugin_table.h"
#include "support/floating_point.h"

extern char** environ;

using namespace narrows::test;

namespace {

// Pages of their own for what is lent.
class Pages {
 public:
  Pages() : begin_(static_cast<unsigned char*>(mmap(nullptr, kSize, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0))) {
    REQUIRE(begin_ != MAP_FAILED);
  }
  ~Pages() { munmap(begin_, kSize); }
  Pages(const Pages&) = delete;
  Pages& operator=(const Pages&) = delete;

  template <class T>
  T* copy(const T* from, size_t count) {
    if (from == nullptr) return nullptr;
    return static_cast<T*>(copy_bytes(from, count * sizeof(T)));
  }
  void* copy_bytes(const void* from, size_t size) {
    REQUIRE(used_ + size + NW_WORKSPACE_ALIGN <= kSize);
    unsigned char* const at = begin_ + used_;
    std::memcpy(at, from, size);
    used_ += (size + NW_WORKSPACE_ALIGN - 1) / NW_WORKSPACE_ALIGN * NW_WORKSPACE_ALIGN;
    return at;
  }
  const char* copy_text(const char* text) { return text == nullptr ? nullptr : copy(text, std::strlen(text) + 1); }
  void may(int access) { REQUIRE(mprotect(begin_, kSize, access) == 0); }

 private:
  static constexpr size_t kSize = 4 << 20;
  unsigned char* begin_;
  size_t used_ = 0;
};

const nw_sig* lend(Pages& pages, const nw_sig& from) {
  nw_sig sig = from;
  nw_tensor_sig* const tensors = pages.copy(from.tensors, from.num_inputs + from.num_outputs);
  for (uint32_t i = 0; i < from.num_inputs + from.num_outputs; ++i) {
    const auto ndim = static_cast<size_t>(std::max(tensors[i].ndim, 0));
    tensors[i].shape = pages.copy(tensors[i].shape, ndim);
    tensors[i].strides = pages.copy(tensors[i].strides, ndim);
  }
  sig.tensors = tensors;
  sig.op = pages.copy_text(from.op);
  sig.params = pages.copy(static_cast<const unsigned char*>(from.params), from.params_size);
  return pages.copy(&sig, 1);
}

const DLTensor* const* lend(Pages& pages, const DLTensor* const* from, uint32_t count, bool with_memory) {
  std::vector<const DLTensor*> pointers;
  for (uint32_t i = 0; i < count; ++i) {
    pointers.push_back(nullptr);
    if (from[i] == nullptr) continue;
    DLTensor t = *from[i];
    const auto ndim = static_cast<size_t>(t.ndim);
    uint64_t bytes = t.dtype.bits / 8;
    for (size_t axis = 0; axis < ndim; ++axis) bytes *= static_cast<uint64_t>(t.shape[axis]);
    t.shape = pages.copy(t.shape, ndim);
    t.strides = pages.copy(t.strides, ndim);
    if (with_memory && bytes != 0) t.data = pages.copy_bytes(t.data, bytes);
    pointers.back() = pages.copy(&t, 1);
  }
  return pages.copy(pointers.data(), count);
}

// Of the inputs their memory too, where that is the host's.
const nw_call* lend(Pages& pages, const nw_call& from) {
  nw_call call = from;
  call.op = pages.copy_text(from.op);
  call.inputs = lend(pages, from.inputs, from.num_inputs, device().device_type == kDLCPU);
  call.outputs = lend(pages, from.outputs, from.num_outputs, false);
  call.params = pages.copy(static_cast<const unsigned char*>(from.params), from.params_size);
  return pages.copy(&call, 1);
}

// What a thread and its process are set to.
std::string settings() {
  std::string text;
  const auto add = [&text](const char* what, const std::string& value) { text += std::string(what) + " " + value + "\n"; };
  sigset_t blocked;
  pthread_sigmask(SIG_SETMASK, nullptr, &blocked);
  for (int number = 1; number < 65; ++number) {
    struct sigaction action{};
    if (sigaction(number, nullptr, &action) != 0) continue;
    const auto handler = reinterpret_cast<uintptr_t>(action.sa_handler);  // of sa_sigaction as well
    add("signal", std::to_string(number) + (sigismember(&blocked, number) == 1 ? " blocked " : " ") + std::to_string(handler));
  }
  add("locale", std::setlocale(LC_ALL, nullptr));
  char folder[4096];
  add("folder", getcwd(folder, sizeof folder) == nullptr ? "?" : folder);
  const mode_t mask = umask(0);
  umask(mask);
  add("umask", std::to_string(mask));
  cpu_set_t cpus;
  CPU_ZERO(&cpus);
  sched_getaffinity(0, sizeof cpus, &cpus);
  std::string bits;
  for (int cpu = 0; cpu < CPU_SETSIZE; ++cpu) bits += CPU_ISSET(cpu, &cpus) ? '1' : '0';
  add("processors", bits);
  for (char** variable = environ; *variable != nullptr; ++variable) add("variable", *variable);
  return text;
}

// Settings that a plugin may have changed long ago, made the test's own for a while.
class OwnSettings {
 public:
  OwnSettings() {
    sched_getaffinity(0, sizeof cpus_, &cpus_);
    cpu_set_t all;
    std::memset(&all, 0xFF, sizeof all);
    sched_setaffinity(0, sizeof all, &all);  // those that there are
    for (size_t i = 0; i < std::size(kSignals); ++i) handlers_[i] = std::signal(kSignals[i], [](int) {});
  }
  ~OwnSettings() {
    sched_setaffinity(0, sizeof cpus_, &cpus_);
    for (size_t i = 0; i < std::size(kSignals); ++i) std::signal(kSignals[i], handlers_[i]);
  }
  OwnSettings(const OwnSettings&) = delete;
  OwnSettings& operator=(const OwnSettings&) = delete;

 private:
  static constexpr int kSignals[] = {SIGUSR1, SIGUSR2, SIGPIPE, SIGCHLD};
  cpu_set_t cpus_;
  void (*handlers_[std::size(kSignals)])(int);
};

// plan() of a signature that is lent on `pages`, which may not be touched afterwards; the caller frees the plan.
void* plan_lent(const Instance& instance, const Sample& s, Pages& pages, nw_plan_info* info) {
  Signature signature(s);
  const nw_sig* const sig = lend(pages, *signature.get());
  pages.may(PROT_READ);
  *info = {};
  info->struct_size = sizeof *info;
  void* plan = nullptr;
  WatchedError watched;
  const FloatingPointMode mode;
  const int32_t status = tested_table().plan(instance.self(), sig, &plan, info, &watched.error);
  pages.may(PROT_NONE);
  CHECK(mode.change() == "");
  INFO(watched.message());
  REQUIRE(status == NW_OK);
  CHECK(watched.untouched());
  return plan;
}

}  // namespace

TEST_CASE("plugin: what is lent is not written, and not looked at when the slot has returned", "[plugin][lent]") {
  for (const Cut cut : {Cut::whole, Cut::threads}) {
    const Instance instance(cut);
    for (const Sample& s : plugin_samples(4)) {
      INFO(s.describe());
      DirectRun run(instance, s);
      const auto expected = run.run();
      nw_plan_info info;
      Pages for_plan, pages;
      void* const plan = plan_lent(instance, s, for_plan, &info);
      WatchedError watched;
      const auto bytes = run.launch(info, [&](const nw_call& call) {
        const nw_call* const lent = lend(pages, call);
        pages.may(PROT_READ);
        const int32_t status = tested_table().launch(instance.self(), plan, lent, &watched.error);
        pages.may(PROT_NONE);
        INFO(watched.message());
        CHECK(status == NW_OK);
      });
      CHECK(watched.untouched());
      CHECK(((info.traits & NW_PLAN_NONDETERMINISTIC) != 0 || same_bytes(bytes, expected)));
      tested_table().plan_free(instance.self(), plan);
    }
  }
}

TEST_CASE("plugin: plan and launch leave the settings of the thread and of the process as they are", "[plugin][lent]") {
  const Instance instance;
  for (const Sample& s : plugin_samples(2)) {
    INFO(s.describe());
    DirectRun run(instance, s);
    run.run();  // what a driver sets at its first use it may
    const OwnSettings own;
    const std::string before = settings();
    run.run();
    const std::string after = settings();
    const auto [was, is] = std::mismatch(before.begin(), before.end(), after.begin(), after.end());
    INFO("before: " << std::string(was, std::find(was, before.end(), '\n'))
                    << "\nafter: " << std::string(is, std::find(is, after.end(), '\n')));
    const bool same = before == after;
    CHECK(same);
  }
}
