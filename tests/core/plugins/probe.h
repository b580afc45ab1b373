// SPDX-License-Identifier: Apache-2.0
// probe.h -- the extension "probe/1" of the test plugin (probe.cpp): what it was asked, and what it shall answer. It governs
// tests/core; host and plugin are built together here, so C++ types may cross.
#pragma once

#include <narrows/plugin.h>

#include <atomic>
#include <cstdint>
#include <functional>
#include <mutex>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace narrows::test {

// A signature by value, as plan() or infer() saw it.
struct SeenTensor {
  DLDataType dtype;
  int32_t ndim;
  uint16_t align_log2, flags;
  int32_t alias_of;
  std::vector<int64_t> shape, strides;
};

struct SeenSig {
  uint32_t struct_size = 0, flags = 0, num_inputs = 0, num_outputs = 0;
  std::string op;
  std::optional<std::string> kernel;
  std::vector<SeenTensor> tensors;
  std::vector<unsigned char> params;
  DLDevice device{};
};

// One slot that was called: its name, and what it was given.
struct Event {
  std::string slot;
  int32_t device_id;
  void* stream;
  void* data;  // of alloc and free, and the workspace of launch
  uint64_t size;
};

// The params of probe.noop/1 and probe.source/1.
struct ProbeParams {
  int64_t n;
  int64_t m;
  int64_t spare;
};

// One per instance, so two runtimes have two.
struct Probe {
  uint32_t struct_size = sizeof(Probe);
  const nw_host* host = nullptr;

  // Answers. A status other than NW_OK comes with `message`; the hooks run first, and may block or throw.
  std::atomic<int32_t> plan_status{NW_OK}, launch_status{NW_OK}, alloc_status{NW_OK}, infer_status{NW_OK};
  std::atomic<int32_t> lost{-1};  // the number of a device whose memory, streams and launches give NW_DEVICE_LOST
  std::string message = "the probe was told to";
  std::atomic<int32_t> argument{-1};
  std::atomic<uint64_t> workspace_size{0};
  std::atomic<int32_t> more_devices{0};  // since create()
  std::atomic<uint32_t> traits{NW_PLAN_CAPTURABLE};
  std::function<void(const nw_sig&)> on_plan;
  std::function<void(const nw_call&)> on_launch;
  std::function<void()> on_destroy;
  std::function<void(const std::string& slot)> on_slot;  // of memory, streams, devices, extensions
  std::function<void(const nw_sig&, nw_spec*, uint32_t)> on_infer;

  // Questions.
  std::atomic<int> plans{0};       // plan() with plan != NULL
  std::atomic<int> asks{0};        // plan() with plan == NULL
  std::atomic<int> plans_made{0};  // those of them that succeeded
  std::atomic<int> plans_freed{0};
  std::atomic<int> launches{0};
  std::string text, scheduled;  // of the program that was planned last; scheduled "": there is none
  std::atomic<int> infers{0};
  std::atomic<int> dead_plans{0};  // launches with a plan that is not alive: always a fault of the host

  // False: events and signatures are not kept, and no lock is taken that a fork could copy in its locked state.
  std::atomic<bool> recording{true};

  void enter(const std::string& slot) {
    if (on_slot) on_slot(slot);
  }
  void record(Event event) {
    if (!recording) return;
    const std::lock_guard lock(mutex);
    events.push_back(std::move(event));
  }
  std::vector<Event> take_events() {
    const std::lock_guard lock(mutex);
    return std::exchange(events, {});
  }
  void see(SeenSig seen) {
    if (!recording) return;
    const std::lock_guard lock(mutex);
    sig = std::move(seen);
  }
  SeenSig last_sig() {
    const std::lock_guard lock(mutex);
    return sig;
  }

 private:
  std::mutex mutex;
  std::vector<Event> events;
  SeenSig sig;
};

}  // namespace narrows::test
