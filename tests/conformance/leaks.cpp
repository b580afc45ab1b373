// SPDX-License-Identifier: Apache-2.0
// leaks.cpp -- what a plugin keeps of each call: nothing. Each slot is called so often that one byte a call is more than a cache
// that fills; memory of the heap, address space, open files and threads are counted before and after.
#include <dirent.h>
#include <malloc.h>

#include <algorithm>
#include <catch2/catch_test_macros.hpp>
#include <cstdio>

#include "plugin_table.h"

using namespace narrows::test;

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define SKIP_UNDER_SANITIZERS() SKIP("the heap is a sanitizer's, which counts leaks itself")
#else
#define SKIP_UNDER_SANITIZERS() (void)0
#endif

namespace {

int64_t entries(const char* folder) {
  DIR* const listing = opendir(folder);
  if (listing == nullptr) return 0;
  int64_t count = 0;
  while (readdir(listing) != nullptr) ++count;
  closedir(listing);
  return count;
}

struct Held {
  int64_t heap = 0, pages = 0, files = 0, threads = 0;

  static Held now() {
    const struct mallinfo2 info = mallinfo2();
    Held held{static_cast<int64_t>(info.uordblks + info.hblkhd), 0, entries("/proc/self/fd"), entries("/proc/self/task")};
    if (std::FILE* const file = std::fopen("/proc/self/statm", "r")) {
      long long pages = 0;
      if (std::fscanf(file, "%lld", &pages) == 1) held.pages = pages;
      std::fclose(file);
    }
    return held;
  }
};

// The smallest block of glibc's heap takes 32 bytes. Three quarters of one for each call, a page for every fourth, a file or a
// thread for every twentieth is a leak.
std::string growth(const Held& before, const Held& after, int64_t times) {
  std::string text;
  const auto grown = [&](const char* what, int64_t from, int64_t to, double each) {
    if (static_cast<double>(to - from) < each * static_cast<double>(times)) return;
    text += " " + std::to_string(to - from) + " " + what;
  };
  grown("bytes of the heap", before.heap, after.heap, 24);
  grown("pages", before.pages, after.pages, 0.25);
  grown("files", before.files, after.files, 0.05);
  grown("threads", before.threads, after.threads, 0.05);
  return text;
}

// What grows in one round and not in the next is a cache, or a driver's. Of files there may be none left after the first thousand.
template <class Action>
void expect_no_leak(const std::string& what, int64_t times, const Action& action) {
  const Held first = Held::now();
  for (int64_t i = 0; i < times / 10 + 2; ++i) action(i);
  const Held warm = Held::now();
  std::string text = growth({warm.heap, warm.pages, first.files, first.threads}, warm, std::max<int64_t>(times / 10, 1000));
  const bool at_once = !text.empty();
  for (int round = 0; !at_once && round < 3 && (round == 0 || !text.empty()); ++round) {
    const Held before = Held::now();
    for (int64_t i = 0; i < times; ++i) action(i);
    text = growth(before, Held::now(), times);
  }
  INFO(what << ", " << times << " times, keeps" << text);
  CHECK(text.empty());
}

int64_t often() { return device().device_type == kDLCPU ? 10000 : 1000; }

}  // namespace

TEST_CASE("plugin: ten thousand launches leave nothing behind", "[plugin][leak]") {
  SKIP_UNDER_SANITIZERS();
  for (const Cut cut : {Cut::whole, Cut::pieces}) {
    const Instance instance(cut);
    for (const Sample& s : plugin_samples(1)) {
      nw_plan_info info;
      Signature signature(s);
      void* const plan = plan_or_fail(instance, signature, &info);
      DirectRun(instance, s).launch(info, [&](const nw_call& call) {
        expect_no_leak("launch of " + s.describe(), often(), [&](int64_t i) {
          if (tested_table().launch(instance.self(), plan, &call, nullptr) != NW_OK) FAIL("launch of " << s.describe());
          if (i % 100 == 99) tested_table().stream_sync(instance.self(), device().device_id, nullptr, nullptr);
        });
      });
      tested_table().plan_free(instance.self(), plan);
    }
  }
}

TEST_CASE("plugin: plans that are made and freed, asked for or refused leave nothing behind", "[plugin][leak]") {
  SKIP_UNDER_SANITIZERS();
  const nw_plugin& table = tested_table();
  const Instance instance;
  const int64_t times = often() / 5;
  for (const Sample& s : plugin_samples(1)) {
    Signature signature(s), unknown(s);
    unknown.get()->flags = 1u << 31;
    nw_error error{};
    nw_plan_info info{};
    info.struct_size = sizeof info;
    expect_no_leak("plan and plan_free of " + s.describe(), times, [&](int64_t) {
      void* plan = nullptr;
      if (table.plan(instance.self(), signature.get(), &plan, &info, &error) == NW_OK) table.plan_free(instance.self(), plan);
    });
    expect_no_leak("the question for " + s.describe(), times,
                   [&](int64_t) { table.plan(instance.self(), signature.get(), nullptr, nullptr, &error); });
    expect_no_leak("a refusal of " + s.describe(), times, [&](int64_t) {
      void* plan = nullptr;
      table.plan(instance.self(), unknown.get(), &plan, &info, &error);
    });
  }
}

TEST_CASE("plugin: memory and streams that are given back, and instances that are destroyed, leave nothing behind",
          "[plugin][leak]") {
  SKIP_UNDER_SANITIZERS();
  const nw_plugin& table = tested_table();
  const int32_t id = device().device_id;
  {
    const Instance instance;
    for (const uint64_t size : {uint64_t{1}, uint64_t{100000}})
      expect_no_leak("alloc and free", often() / 5, [&](int64_t) {
        void* data = nullptr;
        if (table.alloc(instance.self(), id, size, nullptr, &data, nullptr) != NW_OK) return;
        table.free(instance.self(), id, data, nullptr, nullptr);
        table.stream_sync(instance.self(), id, nullptr, nullptr);  // which free() is ordered on
      });
    expect_no_leak("stream_create and stream_destroy", often() / 10, [&](int64_t) {
      void* stream = nullptr;
      if (table.stream_create(instance.self(), id, &stream, nullptr) == NW_OK)
        table.stream_destroy(instance.self(), id, stream, nullptr);
    });
  }
  if (device().device_type == kDLCPU) expect_no_leak("create and destroy", often() / 10, [](int64_t) { const Instance again; });
}
